"""A measured run as the fit sees it: what was measured, and how to project the same runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from schemas.calibration import CalibratedPrecision

Factors = Mapping[str, float]
"""Values by name of `projection.calibration.FACTORS`; a missing one is at its neutral value."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One measured row. `group`: rows that share it are left out together."""

    row: str
    gpu: str
    group: str
    source: str
    precision: CalibratedPrecision
    measured_ms: float
    trust: float = 1.0
    """Weight beside others: less where settings that move the time had to be assumed."""


Project = Callable[[Sequence[Observation], Mapping[str, Factors]], Sequence[float]]
"""Projected iteration times of observations in ms, under the factors of each GPU."""
