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
    return knobs_apart(workload.baseline, trial)


def knobs_apart(one: NormalTrial, other: NormalTrial) -> dict[str, tuple[Any, Any]]:
    """Knobs that two trials have differently: (one's value, the other's), in knob order."""
    before, after = one.model_dump(mode="json"), other.model_dump(mode="json")
    return {name: (before[name], after[name]) for name in after if before[name] != after[name]}


def in_words(value: object) -> str:
    """A knob's value for people: on, off, none, or itself."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value is None else str(value)


def differs(trial: NormalTrial, workload: Workload, knobs: tuple[str, ...]) -> bool:
    """Whether any of `knobs` differs from the workload."""
    return any(getattr(trial, knob) != getattr(workload.baseline, knob) for knob in knobs)
