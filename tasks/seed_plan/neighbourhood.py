"""Seed rule 7: the levers of manual tuning around the workload: VPP, micro batch and recompute."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from projection.legality.normal_form import split_of
from projection.legality.rules.batch import MICRO_BATCHES
from projection.legality.rules.pipeline import MAX_VPP
from projection.legality.split import largest_stage
from schemas.trial import Candidate
from tasks.seed_plan.anchor import Anchor
from tasks.seed_plan.single_axis import recompute_changes

_KEEP = "as the workload"


def neighbourhood(anchor: Anchor) -> Iterator[Candidate]:
    """Every combination of near values, those that change fewest levers first."""
    combinations = product(_micro_batches(anchor), _depths(anchor), _recomputes(anchor))
    ranked = sorted(combinations, key=lambda found: _levers_moved(anchor, *found))
    for mbs, vpp, granularity in ranked:
        if not _levers_moved(anchor, mbs, vpp, granularity):
            continue
        changes: dict[str, Any] = {"mbs": mbs, "vpp": vpp}
        if vpp != anchor.trial.vpp:
            changes["pp_schedule"] = "auto"
        if granularity != _KEEP:
            changes |= recompute_changes(granularity, anchor, vpp)
        tag = f"mbs{mbs}-vpp{vpp}" + ("" if granularity == _KEEP else f"-{granularity}")
        why = f"micro batch {mbs}, vpp {vpp}, recompute {granularity}"
        yield anchor.seed("neighbour", tag, why, **changes)


def _levers_moved(anchor: Anchor, mbs: int, vpp: int, granularity: str) -> int:
    return (mbs != anchor.trial.mbs) + (vpp != anchor.trial.vpp) + (granularity != _KEEP)


def _micro_batches(anchor: Anchor) -> tuple[int, ...]:
    """The workload's, the powers of two next to it, smaller (and leaner) first, and one."""
    mbs = anchor.trial.mbs
    larger = min((size for size in MICRO_BATCHES if size > mbs), default=mbs)
    smaller = max((size for size in MICRO_BATCHES if size < mbs), default=mbs)
    return tuple(dict.fromkeys((mbs, smaller, larger, 1)))


def _depths(anchor: Anchor) -> tuple[int, ...]:
    """The workload's vpp and the next possible ones on either side."""
    pp, own = anchor.trial.pp, anchor.trial.vpp
    if pp == 1:
        return (own,)
    possible = [vpp for vpp in range(1, MAX_VPP + 1) if vpp == own or _splits(pp, vpp, anchor)]
    deeper = min((vpp for vpp in possible if vpp > own), default=own)
    shallower = max((vpp for vpp in possible if vpp < own), default=own)
    return tuple(dict.fromkeys((own, deeper, shallower)))


def _splits(pp: int, vpp: int, anchor: Anchor) -> bool:
    split = split_of(pp, vpp, anchor.workload)
    layers = anchor.workload.architecture.num_layers
    ends = (split.first_stage_layers, split.last_stage_layers)
    return largest_stage(layers, pp, vpp, split.layout, *ends) > 0


def _recomputes(anchor: Anchor) -> tuple[str, ...]:
    """The workload's, and the other kinds, less memory saved first."""
    kinds = ["none", "selective", "full"]
    trial = anchor.trial
    if trial.recompute_granularity != "full":
        kinds.remove(trial.recompute_granularity)
    return (_KEEP, *([] if trial.splits_backward else kinds))
