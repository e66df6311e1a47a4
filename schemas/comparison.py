"""Two runs side by side: what was asked, what was found, and where they part."""

from typing import Any, Literal

from schemas.lineage import ForkStep, Place
from schemas.model import FrozenModel


class Setting(FrozenModel):
    """One value that differs: where it stands ("search.budget.max_perf_calls"), and both values."""

    path: str
    a: Any
    b: Any


class BestTrial(FrozenModel):
    """The trial that wins in a run."""

    trial: int
    trial_id: str
    tag: str
    rule: str
    tokens_per_s_per_gpu: float
    memory_per_gpu_gb: float | None
    provenance: str


class RunSide(FrozenModel):
    """One of the two runs."""

    run_id: str
    as_of_event: int
    head_hash: str
    status: str
    why: str | None
    workload: str
    cluster: str
    refold_version: str
    projection_version: str
    candidates: int
    evaluations: int
    rejections: int
    spent: dict[str, int | float]
    best: BestTrial | None
    forks: tuple[ForkStep, ...]
    """Since the last common event, or all of them; oldest first."""


class RoundSide(FrozenModel):
    """A round in one of the runs."""

    proposer: str
    planned: int
    proposed: int
    scored: int
    why_finished: str | None
    incumbent: int | None
    incumbent_tokens_per_s_per_gpu: float | None


class RoundPair(FrozenModel):
    """A round by its number; None: the run has none of that number."""

    round: int
    a: RoundSide | None
    b: RoundSide | None


class Knob(FrozenModel):
    """A knob that the two best trials have differently."""

    knob: str
    a: Any
    b: Any
    apart_percent: float | None
    """(b/a − 1) · 100, of numbers."""


class TrialSide(FrozenModel):
    """A trial in one of the runs."""

    trial_id: str
    tag: str
    rule: str
    verdict: str
    """in flight, invalidated, fits, does not fit, illegal, or the code of its rejection."""
    tokens_per_s_per_gpu: float | None
    memory_per_gpu_gb: float | None


class TrialPair(FrozenModel):
    """The first trial, by number, that is not the same in both; None: the run has none."""

    trial: int
    differs: Literal["only in a", "only in b", "identity", "verdict", "score"]
    a: TrialSide | None
    b: TrialSide | None


class Comparison(FrozenModel):
    """A beside B."""

    identical: bool
    """The same question, the same rounds, and every trial with the same verdict and score."""
    a: RunSide
    b: RunSide
    common_event: Place | None
    """The last event both have; None: they share none."""
    common_hash: str | None
    configuration: tuple[Setting, ...]
    """Search, workload and cluster."""
    signature: tuple[Setting, ...]
    """Of the parts of the signature, those `configuration` does not say."""
    rounds: tuple[RoundPair, ...]
    best_apart_percent: float | None
    """(b/a − 1) · 100 of the best tokens/s/GPU."""
    knobs: tuple[Knob, ...]
    first_difference: TrialPair | None
    in_both: int
    """Configurations that both tried, by trial id."""
    only_in_a: int
    only_in_b: int
