"""How right projections of measured runs are: what `refold fidelity` answers.

Errors are projected over measured, less one, of the figure a source prints (iteration time where it
does, else tokens/s/GPU).
"""

from typing import Literal

from schemas.model import FrozenModel


class Accuracy(FrozenModel):
    """Errors of some rows."""

    rows: int
    mean: float
    """Mean absolute error."""
    median: float
    bias: float
    """Mean error with its sign."""
    p90: float
    worst: float
    """The largest absolute error, with its sign."""


class Discordance(FrozenModel):
    """Two rows of a sweep in the other order than measured."""

    faster: str
    slower: str
    """By measurement."""
    gap: float
    """Measured rate of the faster over the slower, less one."""


class Ranking(FrozenModel):
    """The order of the rows of one sweep."""

    sweep: str
    source: str
    rows: int
    spearman: float
    kendall: float
    offset: float
    """Median of projected over measured rate."""
    offset_cv: float
    """Standard deviation of that ratio over its mean."""
    regret_top1: float
    """How much worse than the best measured the projected best is: 1 - its rate over the best."""
    regret_top3: float
    """The same for the best of the three that are projected best."""
    concordant: int
    pairs: int
    concordance_far: float | None
    """Share of the pairs measured more than 9 % apart that are in order; None: no such pair."""
    discordant: tuple[Discordance, ...] = ()


class Judged(FrozenModel):
    """Some rows under one set of factors."""

    accuracy: Accuracy
    rankings: tuple[Ranking, ...] = ()


class SourceFidelity(FrozenModel):
    """The rows of one source, under published rates and, where a fit is given, left out of it."""

    source: str
    stated_in_full: int
    before: Judged
    after: Judged | None = None


class RowFidelity(FrozenModel):
    """One row."""

    id: str
    source: str
    group: str
    unit: Literal["ms", "tokens/s/GPU"]
    measured: float
    before: float
    after: float | None = None
    low: float | None = None
    high: float | None = None
    """Least and most projected over the plausible values of what is assumed; under the factors of
    `after` where there is one."""
    stated_in_full: bool
    note: str | None = None
    """What the factors of `after` rest on where it is not rows of this GPU."""


class Alternative(FrozenModel):
    """The order of a sweep under another plausible value of one assumed setting."""

    sweep: str
    setting: str
    value: str
    rows: int
    """Rows that can run so."""
    spearman: float
    regret_top1: float


class Exclusion(FrozenModel):
    """Rows left out for one reason."""

    source: str
    reason: str
    rows: int


class Target(FrozenModel):
    """One thing the evidence is held to."""

    name: str
    wanted: str
    before: str
    after: str | None = None
    met: bool | None = None
    """Whether `after` meets it; None where there is no `after` or nothing to judge."""


class Fidelity(FrozenModel):
    """Everything `refold fidelity` says."""

    gemm: dict[str, str]
    """GEMM model by GPU."""
    sources: tuple[SourceFidelity, ...]
    targets: tuple[Target, ...]
    exclusions: tuple[Exclusion, ...]
    rows: tuple[RowFidelity, ...]
    alternatives: tuple[Alternative, ...] = ()
    """Of the rank sweeps; under `after` where there is one."""
    fitted: str | None = None
    """What `after` was fitted by; None: there is no `after`."""
