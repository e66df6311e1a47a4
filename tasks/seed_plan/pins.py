"""Pinned knobs that the cluster cannot have: refused with what it can, and never left aside."""

from projection.legality import LegalSpace, normalise
from projection.legality.axes import occurring_values, ordered
from projection.legality.check import judge
from schemas.errors import ClusterError
from schemas.legality import AxisValue
from schemas.trial import TrialConfig

_SHOWN = 16
"""Legal values a message lists at most."""


def refuse_impossible_pins(space: LegalSpace) -> None:
    """Raise when nothing is legal with the search's pinned knobs and something is without them.

    Pins at the workload's own values, and pins without which nothing is legal either, are not to
    blame: nothing is raised, and the search ends with the rules that bind.

    Raises:
        ClusterError: names the pinned knob, the rule it breaks and the values that are legal.
    """
    pinned = space.context.pinned
    moved = with_pins(space).model_dump(exclude_none=True)
    if not moved or space.count():
        return
    for knob, value in moved.items():
        legal = _values_without(knob, space)
        if legal:
            raise ClusterError(
                f"pinned.{knob}: {value} is not legal on {space.context.cluster.name}"
                f"{_reason(knob, space)}",
                hint=f"legal values of {knob}: {_listed(legal)}",
            )
    if _with_pins(space, {}).count():
        said = ", ".join(f"{knob} {value}" for knob, value in pinned.items())
        raise ClusterError(
            f"pinned: no legal configuration on {space.context.cluster.name} has {said}",
            hint="pin fewer knobs; `refold axes` lists the legal values of each",
        )


def with_pins(space: LegalSpace) -> TrialConfig:
    """The workload's own configuration with the knobs pinned to another value changed."""
    context = space.context
    baseline = context.baseline
    changed = {knob: v for knob, v in context.pinned.items() if getattr(baseline, knob) != v}
    return TrialConfig.model_validate(changed)


def _with_pins(space: LegalSpace, pinned: dict[str, AxisValue]) -> LegalSpace:
    """The same space under other pins."""
    context = space.context
    search = context.search.model_copy(update={"pinned": pinned})
    return LegalSpace(context.workload, context.cluster, search)


def _values_without(knob: str, space: LegalSpace) -> tuple[AxisValue, ...]:
    """What `knob` could be with the other pins as they are."""
    rest = {name: value for name, value in space.context.pinned.items() if name != knob}
    try:
        freed = _with_pins(space, rest)
    except ClusterError:  # the other pins mean nothing without this one
        return ()
    found = occurring_values(freed.root()).get(knob, set()) if freed.count() else set()
    return ordered(knob, (value for value in found if value is not None))


def _reason(knob: str, space: LegalSpace) -> str:
    """`: ` and the rule that the workload breaks with its pins, the one about `knob` first."""
    context = space.context
    violations = judge(normalise(with_pins(space), context.workload), context).violations
    about = [violation for violation in violations if knob in violation.axes]
    first = next(iter([*about, *violations]), None)
    return f": {first.reason}" if first is not None else ""


def _listed(values: tuple[AxisValue, ...]) -> str:
    shown = ", ".join(str(value) for value in values[:_SHOWN])
    return shown if len(values) <= _SHOWN else f"{shown}, … up to {values[-1]}"
