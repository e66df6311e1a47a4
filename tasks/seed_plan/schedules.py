"""Seed rule 6: the pipeline schedules that the layers allow."""

from collections.abc import Iterator

from schemas.trial import SPLIT_BACKWARD, Candidate, Schedule
from tasks.seed_plan.anchor import Anchor
from tasks.seed_plan.single_axis import recompute_changes

_SWEEP: tuple[tuple[Schedule, int, str], ...] = (
    ("interleaved", 2, "two chunks per rank halve the bubble"),
    ("zero-bubble", 1, "weight gradients fill the bubble"),
    ("zbv-formatted", 2, "a V of two chunks: no bubble at 1F1B's memory"),
    ("ilp", 1, "weight gradients placed by an optimal plan"),
    ("zbv-greedy-half", 2, "a V of two chunks at half of 1F1B's memory"),
    ("interleaved", 4, "four chunks per rank quarter the bubble"),
    ("interleaved", 3, "three chunks per rank"),
    ("1f1b", 1, "the plain pipeline, one chunk per rank"),
)
"""In the order of what is expected of them."""

_DEPTHS = (2, 4, 8)


def schedules(anchor: Anchor) -> Iterator[Candidate]:
    """Each schedule with its vpp, at the workload's pp or, without a pipeline, the first legal one.

    The framework recomputes nothing where the backward pass is split: those carry recompute none.
    """
    host = _with_pipeline(anchor)
    if host is None:
        return
    at = "" if host is anchor else f", at pp {host.trial.pp}"
    for schedule, vpp, why in _SWEEP:
        changes = {"pp_schedule": schedule, "vpp": vpp}
        tag = f"{schedule}-vpp{vpp}" if vpp > 1 else schedule
        if schedule in SPLIT_BACKWARD:
            changes |= recompute_changes("none", host)
        yield host.seed("schedule", tag, f"{why}{at}", **changes)


def _with_pipeline(anchor: Anchor) -> Anchor | None:
    """The anchor if it has a pipeline, else the nearest legal configuration that has one."""
    trial = anchor.trial
    if trial.pp > 1:
        return anchor
    for pp in _DEPTHS:
        found = anchor.at_shape(trial.tp, pp, trial.cp, trial.ep)
        if found is not None:
            return Anchor.at(found, anchor.space)
    return None
