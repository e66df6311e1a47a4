"""The legal values of each knob, and why the values next to them are not legal."""

from collections.abc import Callable, Iterable
from typing import Any, cast

from projection.legality.check import judge
from projection.legality.context import Context
from projection.legality.factors import FACTORS
from projection.legality.normal_form import KNOBS
from projection.legality.rules.batch import MICRO_BATCHES
from projection.legality.rules.pipeline import MAX_VPP
from projection.legality.rules.request import read
from projection.legality.schedule_names import SCHEDULES
from projection.legality.space import LegalSpace, Node, reachable
from schemas.cluster import Cluster
from schemas.legality import AbsentValue, Axis, AxisValue, LegalAxes, Violation
from schemas.search import SearchSpec
from schemas.trial import TrialConfig
from schemas.workload import Workload

_WORDS: dict[str, tuple[AxisValue, ...]] = {
    "pp_schedule": SCHEDULES,
    "recompute_granularity": ("none", "selective", "full"),
    "recompute_method": ("block", "uniform"),
    "fp8": ("none", "hybrid", "e4m3", "delayed"),
}
"""Knobs whose values are words, in the order they are shown."""


def derive_axes(workload: Workload, cluster: Cluster, search: SearchSpec) -> LegalAxes:
    """Every knob's legal values: each occurs in at least one legal trial.

    Pinned knobs have the one value they are pinned to. The baseline's value is always shown, as
    `Axis.baseline`, also where no legal trial has it (then it is among the absent ones, with the
    reason). Schedules are listed per vpp; "auto" is accepted everywhere.
    """
    space = LegalSpace(workload, cluster, search)
    return axes_of(space)


def axes_of(space: LegalSpace) -> LegalAxes:
    """`derive_axes` for a space at hand."""
    occurring = occurring_values(space.root())
    context = space.context
    schedules: dict[int, tuple[str, ...]] = {}
    for vpp, schedule in sorted(occurring.pop(_PAIR)):
        schedules[vpp] = (*schedules.get(vpp, ("auto",)), schedule)
    axes = (_axis(knob, occurring.get(knob, set()), context) for knob in KNOBS)
    return LegalAxes(
        axes=tuple(axis for axis in axes if axis is not None),
        schedules_by_vpp={
            vpp: tuple(sorted(names, key=("auto", *SCHEDULES).index))
            for vpp, names in schedules.items()
        },
    )


_PAIR = "vpp, pp_schedule"
"""Key of the pairs that occur together."""


def occurring_values(root: Node) -> dict[str, set[Any]]:
    """The values each knob takes in the space below a node, and the (vpp, schedule) pairs."""
    found: dict[str, set[Any]] = {_PAIR: set()}
    for node in reachable(root):
        knobs = FACTORS[node.level].knobs
        for branch in node.branches:
            for knob, value in zip(knobs, branch.values, strict=True):
                found.setdefault(knob, set()).add(value)
            if knobs[0] == "vpp":  # the next factor is the schedule
                names = (below.values[0] for below in branch.below.branches)
                found[_PAIR].update((branch.values[0], name) for name in names)
    return found


def _axis(knob: str, occurring: set[Any], context: Context) -> Axis | None:
    """One axis, or None for a knob that neither the workload nor a legal trial sets."""
    values = ordered(knob, {value for value in occurring if value is not None})
    baseline = getattr(context.baseline, knob)
    if baseline is None and not values:
        return None
    pinned_by = context.pinned_by(knob)
    candidates = set() if pinned_by else _nearby(knob, values, context)
    if baseline is not None:
        candidates.add(baseline)
    reasons = (
        (value, _why_absent(knob, value, context))
        for value in ordered(knob, candidates.difference(values))
    )
    return Axis(
        name=knob,
        values=values,
        baseline="none" if baseline is None else baseline,
        pinned=pinned_by is not None,
        pinned_by=pinned_by,
        absent=tuple(
            AbsentValue(value=value, violation=why) for value, why in reasons if why is not None
        ),
    )


def ordered(knob: str, values: Iterable[AxisValue]) -> tuple[AxisValue, ...]:
    """Values of a knob as they are shown: words in their usual order, the rest ascending."""
    words = _WORDS.get(knob)
    key: Callable[[Any], Any] = words.index if words else lambda value: value
    return tuple(sorted(values, key=key))


def _nearby(knob: str, values: tuple[AxisValue, ...], context: Context) -> set[AxisValue]:
    """Values somebody might ask for: what divides, powers of two, and one step beyond."""
    per_node, world = context.cluster.gpus_per_node, context.world
    a = context.architecture
    if knob in _WORDS:
        return set(_WORDS[knob])
    match knob:
        case "tp":
            return {*range(1, per_node + 1), 2 * per_node}
        case "pp":
            return _divisors(a.num_layers, world) | _powers_of_two(world)
        case "ep":
            return _divisors(a.num_experts or 1, world) | _powers_of_two(min(world, 2 * per_node))
        case "etp":
            return _powers_of_two(per_node)
        case "cp":
            return _powers_of_two(2 * per_node)
        case "vpp":
            return set(range(1, MAX_VPP + 2))
        case "mbs":
            return {*MICRO_BATCHES, 3, 2 * MICRO_BATCHES[-1]}
        case "gbs":
            batches = context.global_batches()
            return {max(1, batches[0] // 2), batches[-1] * 2}
        case "recompute_num_layers":
            return {0, max((int(value) for value in values), default=0) + 1}
        case "sync_free_stage":
            return set(range(4))
        case "target_ep_size":
            return set()
        case _:
            return {False, True}


def _divisors(number: int, most: int) -> set[AxisValue]:
    return {n for n in range(1, min(number, most) + 1) if number % n == 0}


def _powers_of_two(most: int) -> set[AxisValue]:
    return {1 << exponent for exponent in range(most.bit_length()) if 1 << exponent <= most}


def _why_absent(knob: str, value: AxisValue, context: Context) -> Violation | None:
    """The rule that the baseline with `knob` at `value` breaks, the one most about the knob itself.

    None for another spelling of a value that is legal.
    """
    request = {knob: value}
    if knob in ("recompute_method", "recompute_num_layers") and value:
        request["recompute_granularity"] = "full"
    trial, found = read(TrialConfig(**cast(dict[str, Any], request)), context.workload)
    if getattr(trial, knob) != value:
        return None
    own = judge(context.baseline, context).violations
    verdict = judge(trial, context, found=found)
    fresh = [violation for violation in verdict.violations if violation not in own]
    about = sorted(
        (violation for violation in fresh if knob in violation.axes),
        key=lambda violation: len(violation.axes),
    )
    return next(iter([*about, *fresh, *verdict.violations]), None)
