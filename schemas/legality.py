"""Verdicts of the legality rules, and the sets of values that are legal per axis."""

from pydantic import Field

from schemas.model import FrozenModel
from schemas.trial import TrialConfig

AxisValue = int | str | bool


class Violation(FrozenModel):
    """One broken rule: a stable code, and a sentence with the numbers in it."""

    code: str
    reason: str
    axes: tuple[str, ...] = ()
    """Knobs the rule reads, so that a caller can say what to change."""


class Verdict(FrozenModel):
    """Whether a trial may be run at all. Memory is not part of it."""

    violations: tuple[Violation, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def legal(self) -> bool:
        """No rule is broken."""
        return not self.violations


class AbsentValue(FrozenModel):
    """A neighbouring value that is not in an axis's legal set, and why."""

    value: AxisValue
    violation: Violation


class Axis(FrozenModel):
    """One knob's legal values, each of which occurs in at least one legal trial."""

    name: str
    values: tuple[AxisValue, ...]
    baseline: AxisValue
    pinned: bool = False
    pinned_by: str | None = None
    absent: tuple[AbsentValue, ...] = ()


class LegalAxes(FrozenModel):
    """All axes of one workload on one cluster."""

    axes: tuple[Axis, ...]
    schedules_by_vpp: dict[int, tuple[str, ...]] = Field(default_factory=dict)

    def axis(self, name: str) -> Axis:
        """The axis called `name`.

        Raises:
            KeyError: there is none.
        """
        for axis in self.axes:
            if axis.name == name:
                return axis
        raise KeyError(name)


class Neighbour(FrozenModel):
    """A legal configuration near an illegal one: what was changed, and how far that is."""

    config: TrialConfig
    changed: dict[str, tuple[AxisValue | None, AxisValue | None]]
    distance: int
