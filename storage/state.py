"""Everything a run knows: the fold of its events, and nothing else.

P16: every candidate is in exactly one of three places, so that
count(candidates) = count(evaluations) + count(rejections) + count(in flight).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, NamedTuple

from schemas.evaluation import Evaluation
from schemas.events import (
    LLMCalled,
    RecipeRecalled,
    RoundFinished,
    RoundStarted,
    RunFinished,
    RunForked,
    RunInterrupted,
    RunResumed,
    RunStarted,
    TailRecovered,
    TrialInvalidated,
    TrialProposed,
    TrialRejected,
    TrialScored,
)
from schemas.legality import LegalAxes
from storage.ranking import eligible, rank

TrialStatus = Literal["proposed", "rejected", "scored"]
RunStatus = Literal["open", "interrupted", "finished"]


@dataclass(frozen=True, slots=True)
class Trial:
    """One candidate and what became of it."""

    number: int
    round: int
    proposed: TrialProposed
    proposed_at: datetime
    rejected: TrialRejected | None = None
    scored: TrialScored | None = None
    decided_at: datetime | None = None
    invalidated: TrialInvalidated | None = None
    """Set when its score was found wrong: it can no longer win."""

    @property
    def status(self) -> TrialStatus:
        """Where the candidate stands; "proposed" is in flight."""
        if self.scored is not None:
            return "scored"
        return "proposed" if self.rejected is None else "rejected"

    @property
    def verdict(self) -> str:
        """What became of the candidate, in a word or by the code of its rejection."""
        if self.rejected is not None:
            return self.rejected.code
        if self.scored is None:
            return "in flight"
        if self.invalidated is not None:
            return "invalidated"
        if not self.scored.evaluation.legal:
            return "illegal"
        return "fits" if self.scored.evaluation.fits else "does not fit"

    @property
    def evaluation(self) -> Evaluation | None:
        """What the oracle said: the score, or the memory verdict behind a rejection."""
        if self.scored is not None:
            return self.scored.evaluation
        return None if self.rejected is None else self.rejected.evaluation

    @property
    def score(self) -> float | None:
        """Tokens/s/GPU if the trial may win: scored, legal, fitting, not invalidated. Else None."""
        if self.scored is None or self.invalidated is not None:
            return None
        return eligible(self.scored.evaluation)


@dataclass(frozen=True, slots=True)
class Round:
    """One round; round 0 is the seed plan."""

    number: int
    started: RoundStarted
    started_at: datetime
    trials: tuple[int, ...] = ()
    """Numbers of the trials proposed in it, in order."""
    finished: RoundFinished | None = None
    finished_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """A line of the scratchpad."""

    text: str
    author: str
    at: datetime
    round: int | None
    trial: int | None


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a language model."""

    event: LLMCalled
    run_id: str
    """The run whose blobs hold the request and the answer."""
    at: datetime
    round: int | None


class ForkPoint(NamedTuple):
    """Where a run of the lineage began: its first event, and what it says."""

    run_id: str
    seq: int
    event: RunForked


@dataclass(frozen=True, slots=True)
class Spent:
    """What the run used of its budget, over all its processes. Rejections cost no call."""

    seeds: int = 0
    """Candidates proposed in rounds of the proposer "seed"."""
    proposals: int = 0
    """Candidates proposed in all other rounds."""
    perf_calls: int = 0
    """Trials scored, from the cache or not: what a resumed run must count alike."""
    benchmark_calls: int = 0
    """Of those, measured."""
    rounds: int = 0
    """Rounds begun by another proposer than "seed"."""
    llm_calls: int = 0
    llm_tokens: int = 0
    """Tokens sent and received, as far as they were reported."""
    llm_cost_usd: float = 0.0
    wall_clock_s: float = 0.0
    """Seconds from the start, or each resumption, to the last event before the next."""


class Conservation(NamedTuple):
    """The count of P16."""

    candidates: int
    evaluations: int
    rejections: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class State:
    """What a run knows as of event `head_seq`.

    A fork that inherits knows what its parent knew at the fork. One that does not begins anew, with
    the parent's candidates `carried` over.
    """

    run_id: str
    head_seq: int
    head_hash: str
    spec: RunStarted
    started_at: datetime
    last_at: datetime
    axes: LegalAxes | None
    rounds: tuple[Round, ...]
    trials: Mapping[int, Trial]
    """By trial number, in order of proposal."""
    incumbent: int | None
    """The best trial: legal, fitting, most tokens/s/GPU; ties to the lowest number."""
    notes: tuple[Note, ...]
    finished: RunFinished | None
    interrupted: RunInterrupted | None
    """Set while the run stands interrupted."""
    resumed: tuple[RunResumed, ...]
    recoveries: tuple[TailRecovered, ...]
    spent: Spent
    in_flight: tuple[int, ...]
    """Trials proposed and not yet decided."""
    stop: str | None = None
    """Which budget the clock found spent, in words."""
    calls: tuple[Call, ...] = ()
    """Every call of a language model, in order."""
    forks: tuple[ForkPoint, ...] = ()
    """Where the runs of this one's lineage began, oldest first; empty: it was never forked."""
    earlier_rounds: int = 0
    """Rounds known when the run was last forked, or reopened after its end."""
    carried: tuple[Trial, ...] = ()
    """Trials of the parent, as it knew them, whose candidates are to be asked again."""
    recalled: RecipeRecalled | None = None
    """The best known recipe, which the seed plan has after the baseline."""

    @property
    def open_round(self) -> Round | None:
        """The round that has begun and not finished."""
        if self.rounds and self.rounds[-1].finished is None:
            return self.rounds[-1]
        return None

    @property
    def next_round(self) -> int:
        """Number of the round that begins next."""
        return self.rounds[-1].number + 1 if self.rounds else 0

    @property
    def next_trial(self) -> int:
        """Number of the candidate that is proposed next."""
        return max(self.trials, default=-1) + 1

    @property
    def own_rounds(self) -> tuple[Round, ...]:
        """The rounds since the run was last forked, or reopened after its end."""
        return self.rounds[self.earlier_rounds :]

    @property
    def best(self) -> Trial | None:
        """The incumbent's trial."""
        return None if self.incumbent is None else self.trials[self.incumbent]

    @property
    def baseline(self) -> Trial | None:
        """Trial 0: the workload as its file says."""
        return self.trials.get(0)

    @property
    def conservation(self) -> Conservation:
        """Candidates, and where each of them is (P16)."""
        statuses = [trial.status for trial in self.trials.values()]
        return Conservation(
            len(statuses),
            statuses.count("scored"),
            statuses.count("rejected"),
            statuses.count("proposed"),
        )

    @property
    def status(self) -> RunStatus:
        """finished, interrupted, or open: being written, or left by a killed process."""
        if self.finished is not None:
            return "finished"
        return "open" if self.interrupted is None else "interrupted"

    def ranked(self) -> list[Trial]:
        """Trials that may win, best first."""
        scored = [(t.score, t) for t in self.trials.values()]
        ranked = [(rank(t.number, score), t) for score, t in scored if score is not None]
        return [trial for _, trial in sorted(ranked, key=lambda pair: pair[0])]
