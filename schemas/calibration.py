"""Fitted factors between published and achieved rates of one GPU, and how far to trust them."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from schemas.line import Line, Name
from schemas.model import FrozenModel

Level = Literal["vendor", "family", "gpu"]
"""Whose measured rows: all of a vendor's GPUs', one architecture family's, or one GPU's."""

CalibratedPrecision = Literal["bf16", "fp8"]

Size = Annotated[float, Field(ge=0, le=1e3)]
"""An absolute relative error."""


class Factor(FrozenModel):
    """One fitted number, and what the rows had to say of it."""

    value: float
    prior: float
    """What it was before any row of this fit was seen."""
    low: float
    high: float
    """One standard error below and above; both equal `value` where no row constrains it."""
    origin: Literal["gpu", "family", "vendor", "prior"]
    """Whose rows constrain it, the nearest that do; "prior": none does, and it keeps its prior."""
    meaning: Line
    unit: Line
    range: tuple[float, float]


class GroupError(FrozenModel):
    """What a calibration that never saw a group says of it."""

    group: Name
    """model, GPU, precision, GPUs."""
    rows: tuple[Name, ...]
    precision: CalibratedPrecision
    error: float
    """Median over its rows of projected over measured time, less one, fitted without the group."""
    worst: float
    """The largest of its rows in absolute value, with its sign."""
    fitted: float
    """The same median with the factors as shipped, which did see it."""
    factors: dict[str, float]
    """The factors fitted without it."""


class Evidence(FrozenModel):
    """Left-out errors of one kind of row: what to expect of a projection of that kind."""

    level: Literal["gpu", "family"]
    precision: CalibratedPrecision
    rows: int = Field(gt=0)
    groups: int = Field(gt=0)
    expected_error: Size
    """Median over groups of the absolute error, each group left out of its own fit."""
    band: Size
    """Relative half-width that held at least 80 % of the left-out rows, every group counting as
    one."""


class Calibration(FrozenModel):
    """A GPU's factors with the rows they come from. What the YAML holds, and the signature hashes.

    `factors` multiply the published rates of `over` (see docs/calibration.md).
    """

    format: Literal[1] = 1
    gpu: Name
    family: Name
    over: Name
    """GPU whose published rates the factors multiply: the GPU itself, or the nearest of its
    family."""
    gemm: Literal["origami", "tile"]
    """GEMM model the factors were fitted over."""
    fitted_from: Level
    """Whose rows; a GPU without a row of its own has its family's factors."""
    factors: dict[str, Factor]
    evidence: tuple[Evidence, ...]
    groups: tuple[GroupError, ...]
    inputs: str
    """Hash of the rows, the published rates and the projection that were fitted."""
    notes: tuple[Line, ...] = ()

    @model_validator(mode="after")
    def _evidence_once(self) -> "Calibration":
        kinds = [(each.level, each.precision) for each in self.evidence]
        if len(set(kinds)) < len(kinds):
            raise ValueError("evidence: the same level and precision twice")
        return self


Nearest = Literal["gpu and precision", "gpu", "family and precision", "family", "none"]
"""What a projection has in common with the measured runs that are nearest to it."""


class ExpectedError(FrozenModel):
    """How far off a projected time may be, by the nearest measured evidence."""

    error: float | None = None
    """Median absolute error of left-out measured groups; None: nothing measured is near."""
    band: float | None = None
    """Half-width that held 80 % of them."""
    nearest: Nearest
    rows: int = 0
    groups: int = 0

    @property
    def beside(self) -> str:
        """What is written beside a projected rate: ` ± 9 %`, or nothing."""
        return "" if self.band is None else f" ± {100 * self.band:.0f} %"

    @property
    def words(self) -> str:
        """The expected error for a person to read."""
        if self.error is None or self.band is None:
            return "unknown: uncalibrated, no measured run stands behind these rates"
        of = {
            "gpu and precision": "this GPU and precision",
            "gpu": "this GPU, other precision",
            "family and precision": "its family, this precision",
            "family": "its family, other precision",
        }[self.nearest]
        return (
            f"{100 * self.error:.0f} % typical, {100 * self.band:.0f} % in 8 of 10"
            f" ({self.rows} left-out runs in {self.groups} groups of {of})"
        )
