"""A candidate training configuration: as somebody asks for it, and in normal form."""

import hashlib
import json
from typing import Any, Final, Literal

from pydantic import Field

from schemas.model import FrozenModel

Schedule = Literal[
    "1f1b",
    "interleaved",
    "zero-bubble",
    "zb-heuristic",
    "zbv-formatted",
    "zbv-greedy-half",
    "zbv-greedy-min",
    "ilp",
]
Recompute = Literal["none", "selective", "full"]
RecomputeMethod = Literal["block", "uniform"]
Fp8 = Literal["none", "hybrid", "e4m3", "delayed"]

SCHEDULE_ALIASES = {
    "zerobubble": "zero-bubble",
    "zerobubble-heuristic": "zb-heuristic",
    "zero-bubble-heuristic": "zb-heuristic",
    "seaailab-ilp": "ilp",
    "interleaved_1f1b": "interleaved",
    "1f1b-interleaved": "interleaved",
    "basic_1f1b": "1f1b",
    "v-half": "zbv-greedy-half",
    "v-min": "zbv-greedy-min",
}
"""The guide's and the framework's spellings of our schedule names."""

PP_ALGORITHM: dict[Schedule, str] = {
    "1f1b": "1f1b",
    "interleaved": "1f1b-interleaved",
    "zero-bubble": "zero-bubble",
    "zb-heuristic": "zero-bubble-heuristic",
    "zbv-formatted": "zbv-formatted",
    "zbv-greedy-half": "v-half",
    "zbv-greedy-min": "v-min",
    "ilp": "seaailab-ilp",
}
"""Our schedules in Primus' spelling of `pp_algorithm`."""

SPLIT_BACKWARD = frozenset(
    {"zero-bubble", "zb-heuristic", "zbv-formatted", "zbv-greedy-half", "zbv-greedy-min", "ilp"}
)
"""Schedules that run the weight gradient apart from the input gradient."""


class TrialConfig(FrozenModel):
    """What a proposer asks for. None means: inherit the workload's value."""

    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    etp: int | None = None
    cp: int | None = None
    vpp: int | None = None
    mbs: int | None = None
    gbs: int | None = None
    pp_schedule: str | None = None
    """A Schedule, one of its aliases, or "auto"."""
    enable_zero_bubble: bool | None = None
    recompute_granularity: Recompute | None = None
    recompute_method: RecomputeMethod | None = None
    recompute_num_layers: int | None = None
    overlap_grad_reduce: bool | None = None
    overlap_param_gather: bool | None = None
    cross_entropy_loss_fusion: bool | None = None
    use_distributed_optimizer: bool | None = None
    use_torch_fsdp2: bool | None = None
    use_turbo_deepep: bool | None = None
    sync_free_stage: int | None = None
    target_ep_size: int | None = None
    fp8: Fp8 | None = None


class NormalTrial(FrozenModel):
    """Every knob with its value: two spellings of one configuration have one normal form.

    `layout`, `first_stage_layers`, `last_stage_layers`, `recompute_layer_ids` are the workload's
    where the trial keeps its (pp, vpp) and recompute setting, else None or empty.
    """

    tp: int
    pp: int
    ep: int
    etp: int
    cp: int
    vpp: int
    mbs: int
    gbs: int
    pp_schedule: Schedule
    recompute_granularity: Recompute
    recompute_method: RecomputeMethod | None
    recompute_num_layers: int
    overlap_grad_reduce: bool
    overlap_param_gather: bool
    cross_entropy_loss_fusion: bool
    use_distributed_optimizer: bool
    use_torch_fsdp2: bool
    use_turbo_deepep: bool
    sync_free_stage: int
    target_ep_size: int | None
    fp8: Fp8
    layout: str | None = None
    first_stage_layers: int | None = None
    last_stage_layers: int | None = None
    recompute_layer_ids: tuple[int, ...] = ()
    recompute_modules: tuple[str, ...] = ()

    @property
    def trial_id(self) -> str:
        """Identity of the configuration: 16 hex digits of the SHA-256 of the normal form."""
        return trial_id_of(self.model_dump(mode="json"))

    @property
    def splits_backward(self) -> bool:
        """Whether the schedule runs weight gradients apart from input gradients."""
        return self.pp_schedule in SPLIT_BACKWARD


_CANONICAL: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def trial_id_of(normal_form: dict[str, Any]) -> str:
    """`NormalTrial.trial_id`, for whoever holds the normal form already dumped as JSON."""
    text = _CANONICAL.encode(normal_form)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class Candidate(FrozenModel):
    """One proposal of the seed plan or of a later round."""

    config: TrialConfig
    rule: str
    """Which rule proposed it: "baseline", "recompute", "moe-communication", …"""
    why: str
    """One line a person can read."""
    tag: str = Field(default="", max_length=80)
