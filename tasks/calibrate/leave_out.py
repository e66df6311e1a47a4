"""How wrong a calibration is on rows it never saw: one group left out at a time, or one GPU."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from schemas.calibration import CalibratedPrecision
from tasks.calibrate.fit import Array, Fit, by_name, log_errors, solve
from tasks.calibrate.observation import Observation

BAND_SHARE = 0.8


@dataclass(frozen=True, slots=True)
class LeftOut:
    """One group under factors that were fitted without it. Errors are projected/measured - 1."""

    group: str
    gpu: str
    precision: CalibratedPrecision
    rows: tuple[str, ...]
    errors: tuple[float, ...]
    fitted: tuple[float, ...]
    """The same under the factors that did see it."""
    factors: dict[str, float]
    """Those that did not."""

    @property
    def typical(self) -> float:
        """Median of its rows' absolute errors."""
        return median(abs(error) for error in self.errors)


def each_group(result: Fit) -> list[LeftOut]:
    """Every group, left out of its own fit (linearised around the fit with all rows)."""
    return _each(result, lambda seen, group: seen.group == group.group)


def each_gpu(result: Fit) -> list[LeftOut]:
    """Every group, under factors fitted without a single row of its GPU."""
    return _each(result, lambda seen, group: seen.gpu == group.gpu)


def _each(result: Fit, hides: Callable[[Observation, Observation], bool]) -> list[LeftOut]:
    groups: dict[str, list[Observation]] = {}
    for seen in result.problem.observations:
        groups.setdefault(seen.group, []).append(seen)
    return [_left_out(result, members, hides) for _, members in sorted(groups.items())]


def _left_out(
    result: Fit,
    members: Sequence[Observation],
    hides: Callable[[Observation, Observation], bool],
) -> LeftOut:
    first = members[0]

    def hidden(seen: Observation) -> bool:
        return hides(seen, first)

    factors = solve(result.problem, result.linear, hidden)
    return LeftOut(
        first.group,
        first.gpu,
        first.precision,
        tuple(seen.row for seen in members),
        _errors(result, members, factors),
        _errors(result, members, result.at),
        by_name(factors[first.gpu]),
    )


def _errors(
    result: Fit, members: Sequence[Observation], at: Mapping[str, Array]
) -> tuple[float, ...]:
    return tuple(math.expm1(x) for x in log_errors(result.problem, members, at))


def band(groups: Sequence[LeftOut]) -> float:
    """The least half-width that holds 80 % of the left-out rows, every group counting as one."""
    sizes = sorted((abs(e), 1 / len(group.errors)) for group in groups for e in group.errors)
    held = np.cumsum([weight for _, weight in sizes])
    return sizes[int(np.searchsorted(held, BAND_SHARE * len(groups) - 1e-9))][0]
