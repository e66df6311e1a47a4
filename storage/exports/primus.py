"""A trial in Primus' words: the settings under `overrides:` that make the framework run it.

Values are those of Primus and Megatron-LM arguments of the same names; None unsets one, also where
a preset sets it.
"""

from typing import Any

from schemas.trial import PP_ALGORITHM, NormalTrial
from schemas.workload import Workload
from storage.exports.knobs import MOE_COMMUNICATION, RECOMPUTE, SHARDING, differs

MEGATRON_SCHEDULES = frozenset({"1f1b", "interleaved"})
"""What Megatron-LM runs by itself, with no patch installed."""

_OTHER_SPLITS = {
    "decoder_pipeline_manual_split_list": None,
    "account_for_embedding_in_pipeline_split": False,
    "account_for_loss_in_pipeline_split": False,
}
_RECOMPUTE_SWITCHES = {"recompute_activations": False, "moe_layer_recompute": False}


def settings_of(trial: NormalTrial, workload: Workload) -> dict[str, Any]:
    """Every knob of `trial`, spelled out."""
    return {
        **_parallel(trial, workload),
        **_pipeline(trial),
        **_recompute(trial),
        **_sharding(trial),
        **(_moe_communication(trial) if workload.architecture.is_moe else {}),
        "cross_entropy_loss_fusion": trial.cross_entropy_loss_fusion,
        "fp8": _fp8(trial),
    }


def changed_settings(trial: NormalTrial, workload: Workload) -> dict[str, Any]:
    """The settings in which `trial` differs from the workload."""
    before = settings_of(workload.baseline, workload)
    after = settings_of(trial, workload)
    return {key: value for key, value in after.items() if before.get(key) != value}


def overrides_of(trial: NormalTrial, workload: Workload) -> dict[str, Any]:
    """What an overlay must set so that the workload becomes `trial`.

    Degrees, batch, pipeline and recompute always: what a file says of one (layers per chunk, a null
    expert TP, full recomputation of no layers) means something else, or is refused, once another
    changes. The other groups only where the trial changes them, and then whole, so that no half of
    the file's own setting is left standing.
    """
    overrides = _parallel(trial, workload) | _pipeline(trial) | _recompute(trial)
    stated = overrides_in(workload)
    overrides |= {key: off for key, off in _OTHER_SPLITS.items() if key in stated}
    if differs(trial, workload, RECOMPUTE) or not stated.keys().isdisjoint(_RECOMPUTE_SWITCHES):
        overrides |= _RECOMPUTE_SWITCHES
    if differs(trial, workload, SHARDING):
        overrides |= _sharding(trial)
    if differs(trial, workload, MOE_COMMUNICATION):
        overrides |= _moe_communication(trial)
    if differs(trial, workload, ("cross_entropy_loss_fusion",)):
        overrides["cross_entropy_loss_fusion"] = trial.cross_entropy_loss_fusion
    if differs(trial, workload, ("fp8",)):
        overrides["fp8"] = _fp8(trial)
    return overrides


def overrides_in(workload: Workload) -> dict[str, Any]:
    """The `overrides:` of the workload's own document."""
    modules = workload.document.get("modules")
    module = modules.get(workload.trainer) if isinstance(modules, dict) else None
    overrides = module.get("overrides") if isinstance(module, dict) else None
    return dict(overrides) if isinstance(overrides, dict) else {}


def _parallel(trial: NormalTrial, workload: Workload) -> dict[str, Any]:
    key = "expert_tensor_parallel_size"
    says_etp = (
        workload.architecture.is_moe or trial.etp != trial.tp or key in overrides_in(workload)
    )
    return {
        "tensor_model_parallel_size": trial.tp,
        "pipeline_model_parallel_size": trial.pp,
        "expert_model_parallel_size": trial.ep,
        **({key: trial.etp} if says_etp else {}),
        "context_parallel_size": trial.cp,
        "micro_batch_size": trial.mbs,
        "global_batch_size": trial.gbs,
    }


def _pipeline(trial: NormalTrial) -> dict[str, Any]:
    """Split and schedule. A layout implies vpp, and Megatron takes no other spelling beside it."""
    chunks = trial.vpp if trial.vpp > 1 and trial.layout is None else None
    return {
        "virtual_pipeline_model_parallel_size": chunks,
        "num_virtual_stages_per_pipeline_rank": chunks,
        "num_layers_per_virtual_pipeline_stage": None,
        "pipeline_model_parallel_layout": trial.layout,
        "decoder_first_pipeline_num_layers": trial.first_stage_layers,
        "decoder_last_pipeline_num_layers": trial.last_stage_layers,
        **_schedule(trial),
    }


def _schedule(trial: NormalTrial) -> dict[str, Any]:
    """Megatron's own schedules need every patch off; all others are installed by Primus' patch.

    `enable_zero_bubble` does nothing without a patch, but its preset default is true, and tools
    that read it alone would take the run for a zero-bubble one.
    """
    patched = trial.pp_schedule not in MEGATRON_SCHEDULES
    return {
        "patch_primus_pipeline": patched,
        "patch_zero_bubble": False,
        "enable_zero_bubble": patched,
        "pp_algorithm": PP_ALGORITHM[trial.pp_schedule],
    }


def _recompute(trial: NormalTrial) -> dict[str, Any]:
    full = trial.recompute_granularity == "full"
    counted = full and not trial.recompute_layer_ids
    return {
        "recompute_granularity": None
        if trial.recompute_granularity == "none"
        else trial.recompute_granularity,
        "recompute_method": trial.recompute_method if counted else None,
        "recompute_num_layers": trial.recompute_num_layers if counted else None,
        "recompute_layer_ids": list(trial.recompute_layer_ids) or None,
        "recompute_modules": list(trial.recompute_modules) or None,
    }


def _sharding(trial: NormalTrial) -> dict[str, Any]:
    return {
        "overlap_grad_reduce": trial.overlap_grad_reduce,
        "overlap_param_gather": trial.overlap_param_gather,
        "use_distributed_optimizer": trial.use_distributed_optimizer,
        "use_torch_fsdp2": trial.use_torch_fsdp2,
    }


def _moe_communication(trial: NormalTrial) -> dict[str, Any]:
    """DeepEP and sync-free MoE are Primus-Turbo's: they need its main switch."""
    used = trial.use_turbo_deepep or trial.sync_free_stage > 0
    return {
        "use_turbo_deepep": trial.use_turbo_deepep,
        "turbo_sync_free_moe_stage": trial.sync_free_stage,
        **({"enable_primus_turbo": True} if used else {}),
    }


def _fp8(trial: NormalTrial) -> str | None:
    return None if trial.fp8 == "none" else trial.fp8
