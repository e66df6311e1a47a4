"""What the legality rules know beside the trial, worked out once."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from projection.legality.normal_form import KNOBS, normalise
from schemas.architecture import Architecture
from schemas.cluster import Cluster
from schemas.errors import ClusterError, UserError
from schemas.legality import AxisValue
from schemas.search import SearchSpec
from schemas.trial import NormalTrial, TrialConfig
from schemas.workload import Workload

TOGGLE_OF: Mapping[str, str] = MappingProxyType(
    {
        **{name: name for name in ("tp", "pp", "ep", "cp", "vpp", "mbs", "gbs", "pp_schedule")},
        "etp": "ep",
        "recompute_granularity": "recompute",
        "recompute_method": "recompute",
        "recompute_num_layers": "recompute",
        "overlap_grad_reduce": "overlap_grad_reduce",
        "overlap_param_gather": "overlap_param_gather",
        "cross_entropy_loss_fusion": "cross_entropy_loss_fusion",
        "use_distributed_optimizer": "dp_sharding",
        "use_torch_fsdp2": "dp_sharding",
        "use_turbo_deepep": "moe_communication",
        "sync_free_stage": "moe_communication",
        "fp8": "fp8",
    }
)
"""Which toggle of `optimization.axes` frees which knob. `target_ep_size` is never searched: it
changes what the all-to-all is priced for, not what runs."""

DEFAULT_GBS_GROWTH = 8
"""Largest multiple of the workload's global batch when the axis is freed without a maximum."""


@dataclass(frozen=True, slots=True)
class Context:
    """Workload, cluster and search, and what every rule would otherwise work out anew."""

    workload: Workload
    cluster: Cluster
    search: SearchSpec
    world: int
    pinned: Mapping[str, AxisValue]
    """Knobs fixed to a given value by `pinned`."""
    inherited: frozenset[str]
    """Knobs fixed to the workload's value by a toggle."""

    @property
    def architecture(self) -> Architecture:
        """The model."""
        return self.workload.architecture

    @property
    def baseline(self) -> NormalTrial:
        """The workload's own configuration."""
        return self.workload.baseline

    @classmethod
    def of(cls, workload: Workload, cluster: Cluster, search: SearchSpec) -> "Context":
        """The context of a search.

        Raises:
            ClusterError: `pinned` names a knob there is not or that no run has, or a value it
                cannot have.
        """
        pinned = _pinned(search, workload)
        toggled = {
            knob
            for knob in KNOBS
            if knob not in pinned
            and (knob not in TOGGLE_OF or not getattr(search.axes, TOGGLE_OF[knob]))
        }
        return cls(workload, cluster, search, cluster.world_size, pinned, frozenset(toggled))

    def given(self, knob: str) -> set[Any]:
        """Values of `knob` that somebody wrote down: the workload's, and a pinned one."""
        pinned = {self.pinned[knob]} if knob in self.pinned else set()
        return {getattr(self.baseline, knob), *pinned}

    def pinned_by(self, knob: str) -> str | None:
        """What fixes `knob`, in the words of the cluster file; None when it is searched."""
        if knob in self.pinned:
            return f"pinned.{knob}"
        if knob not in self.inherited:
            return None
        return (
            f"optimization.axes.{TOGGLE_OF[knob]}: false" if knob in TOGGLE_OF else "not searched"
        )

    def global_batches(self) -> tuple[int, ...]:
        """Global batches a search may use: the workload's, and doublings of it when freed."""
        base = self.baseline.gbs
        if "gbs" in self.inherited or base < 1:
            return (base,)
        most = self.search.max_gbs or DEFAULT_GBS_GROWTH * base
        doublings = [base]
        while doublings[-1] * 2 <= most:
            doublings.append(doublings[-1] * 2)
        return tuple(doublings)


def _pinned(search: SearchSpec, workload: Workload) -> Mapping[str, AxisValue]:
    """The pinned knobs with their values in normal form."""
    for name in search.pinned:
        if name not in KNOBS:
            close = difflib.get_close_matches(name, KNOBS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"knobs: {', '.join(KNOBS)}"
            raise ClusterError(f"pinned.{name}: there is no such knob; {hint}")
        if name not in TOGGLE_OF:
            raise ClusterError(
                f"pinned.{name}: cannot be pinned: no setting of a run says it, it only prices the"
                " all-to-all of another EP; pin ep, or ask refold project --set"
            )
    if not search.pinned:
        return MappingProxyType({})
    values: dict[str, Any] = dict(search.pinned)
    try:
        normal = normalise(TrialConfig(**values), workload)
    except (ValueError, UserError) as error:
        raise ClusterError(f"pinned: {' '.join(str(error).split())}") from error
    for name, value in search.pinned.items():
        if name not in ("pp_schedule", "fp8") and getattr(normal, name) != value:
            raise ClusterError(
                f"pinned.{name}: {value} means nothing here, the workload makes it"
                f" {getattr(normal, name)}; pin what it depends on too"
            )
    return MappingProxyType({name: getattr(normal, name) for name in search.pinned})
