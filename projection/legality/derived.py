"""Framework settings that a trial's knobs need beside themselves, in Primus' keys.

Sources: Primus' validate_args_on_rocm (deepep, sync-free stages, turbo grouped GEMM), Megatron's
validate_args (FSDP2), and the shipped recipes that use these features.
"""

from typing import Any

from projection.legality.schedule_names import splits_backward
from schemas.trial import PP_ALGORITHM, NormalTrial
from schemas.workload import Workload


def derived_settings(trial: NormalTrial, workload: Workload) -> dict[str, Any]:
    """Overrides that must go with the trial's own; a value of None removes the key.

    Only for what the trial changes: the workload's own configuration needs none (it is `{}` for the
    baseline), and neither does a knob that the trial leaves as the file has it.
    """
    base = workload.baseline
    settings = _schedule(trial, base) | _split(trial, base) | _recompute(trial, base)
    if workload.architecture.is_moe:
        settings |= _moe(trial, workload)
    if trial.use_torch_fsdp2 and not base.use_torch_fsdp2:
        settings |= {"gradient_accumulation_fusion": False, "ckpt_format": "torch_dist"}
    return settings | _fp8(trial, workload)


def _schedule(trial: NormalTrial, base: NormalTrial) -> dict[str, Any]:
    """A split schedule runs in Primus' own pipeline, any other in Megatron's."""
    if trial.pp_schedule == base.pp_schedule:
        return {}
    split = splits_backward(trial.pp_schedule)
    return {
        "pp_algorithm": PP_ALGORITHM[trial.pp_schedule],
        "enable_zero_bubble": split,
        "patch_primus_pipeline": split,
        "patch_zero_bubble": False,
    }


def _split(trial: NormalTrial, base: NormalTrial) -> dict[str, Any]:
    """How layers are split, where it is no longer as the file says."""
    keys = {
        "pipeline_model_parallel_layout": (trial.layout, base.layout),
        "decoder_first_pipeline_num_layers": (trial.first_stage_layers, base.first_stage_layers),
        "decoder_last_pipeline_num_layers": (trial.last_stage_layers, base.last_stage_layers),
    }
    return {key: now for key, (now, was) in keys.items() if now != was}


def _recompute(trial: NormalTrial, base: NormalTrial) -> dict[str, Any]:
    """Listed layers and a method exclude each other, and modules belong to selective only."""
    settings: dict[str, Any] = {}
    if trial.recompute_layer_ids != base.recompute_layer_ids:
        settings["recompute_layer_ids"] = list(trial.recompute_layer_ids) or None
    if trial.recompute_modules != base.recompute_modules:
        settings["recompute_modules"] = list(trial.recompute_modules) or None
    return settings


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
