"""The knobs of a trial: their groups, and which of them differ from the workload's."""

from typing import Any

from schemas.trial import NormalTrial
from schemas.workload import Workload

RECOMPUTE = (
    "recompute_granularity",
    "recompute_method",
    "recompute_num_layers",
    "recompute_layer_ids",
    "recompute_modules",
)
SHARDING = (
    "overlap_grad_reduce",
    "overlap_param_gather",
    "use_distributed_optimizer",
    "use_torch_fsdp2",
)
MOE_COMMUNICATION = ("use_turbo_deepep", "sync_free_stage")


def changed_knobs(trial: NormalTrial, workload: Workload) -> dict[str, tuple[Any, Any]]:
    """Knobs that differ from the workload: (workload's value, trial's value), in knob order."""
    before = workload.baseline.model_dump(mode="json")
    after = trial.model_dump(mode="json")
    return {name: (before[name], after[name]) for name in after if before[name] != after[name]}


def differs(trial: NormalTrial, workload: Workload, knobs: tuple[str, ...]) -> bool:
    """Whether any of `knobs` differs from the workload."""
    return any(getattr(trial, knob) != getattr(workload.baseline, knob) for knob in knobs)
