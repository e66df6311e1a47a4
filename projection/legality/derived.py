"""Framework settings that a trial's knobs need beside themselves, in Primus' keys.

Sources: Primus' validate_args_on_rocm (deepep, sync-free stages, turbo grouped GEMM), Megatron's
validate_args (FSDP2), and the shipped recipes that use these features.
"""

from typing import Any

from schemas.trial import NormalTrial
from schemas.workload import Workload


def derived_settings(trial: NormalTrial, workload: Workload) -> dict[str, Any]:
    """Overrides that must go with the trial's own; a value of None removes the key.

    Not the knobs themselves: schedule, layer split and recomputation are for the export to spell.
    Only for what the trial changes: the workload's own configuration needs none (it is `{}` for the
    baseline), and neither does a knob that the trial leaves as the file has it.
    """
    base = workload.baseline
    settings = _moe(trial, workload) if workload.architecture.is_moe else {}
    if trial.use_torch_fsdp2 and not base.use_torch_fsdp2:
        settings |= {"gradient_accumulation_fusion": False, "ckpt_format": "torch_dist"}
    return settings | _fp8(trial, workload)


def _moe(trial: NormalTrial, workload: Workload) -> dict[str, Any]:
    """What DeepEP and the sync-free stages need.

    Stages 2 and 3 need Primus-Turbo's grouped GEMM, which excludes the legacy one (the shipped
    stage-2 recipes set both so).
    """
    base = workload.baseline
    changed = (trial.use_turbo_deepep, trial.sync_free_stage) != (
        base.use_turbo_deepep,
        base.sync_free_stage,
    )
    settings: dict[str, Any] = {}
    if not changed:
        return settings
    if trial.use_turbo_deepep or trial.sync_free_stage:
        settings["enable_primus_turbo"] = True
    if trial.use_turbo_deepep:
        settings["moe_router_dtype"] = "fp32"
        settings["moe_shared_expert_overlap"] = False
    if trial.sync_free_stage >= 2:
        settings["use_turbo_grouped_gemm"] = True
        settings["moe_use_legacy_grouped_gemm"] = False
    return settings


def _fp8(trial: NormalTrial, workload: Workload) -> dict[str, Any]:
    """The recipe of FP8: tensorwise under multi-latent attention, delayed where asked for."""
    if trial.fp8 in ("none", workload.baseline.fp8):
        return {}
    if workload.architecture.attention == "mla":
        return {"fp8_recipe": "tensorwise", "use_turbo_fused_act_with_probs": True}
    return {"fp8": "hybrid", "fp8_recipe": "delayed"} if trial.fp8 == "delayed" else {}
