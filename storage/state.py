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
    RoundFinished,
    RoundStarted,
    RunFinished,
    RunInterrupted,
    RunResumed,
    RunStarted,
    TailRecovered,
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

    @property
    def status(self) -> TrialStatus:
        """Where the candidate stands; "proposed" is in flight."""
        if self.scored is not None:
            return "scored"
        return "proposed" if self.rejected is None else "rejected"

    @property
    def evaluation(self) -> Evaluation | None:
        """What the oracle said: the score, or the memory verdict behind a rejection."""
        if self.scored is not None:
            return self.scored.evaluation
        return None if self.rejected is None else self.rejected.evaluation

    @property
    def score(self) -> float | None:
        """Tokens/s/GPU if the trial may win: scored, legal and fitting. Else None."""
        return None if self.scored is None else eligible(self.scored.evaluation)


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
    """What a run knows as of event `head_seq`."""

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

    @property
    def open_round(self) -> Round | None:
        """The round that has begun and not finished."""
        if self.rounds and self.rounds[-1].finished is None:
            return self.rounds[-1]
        return None

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


def remaining_plan(state: State, planned: list[str]) -> list[int]:
    """Positions in `planned` (trial ids, in order) that the open round has not proposed yet.

    A plan is recomputed on resume, not recorded: it is a function of the run's spec. Every
    position is returned when no round is open.
    """
    current = state.open_round
    proposed = [state.trials[n].proposed.trial_id for n in current.trials] if current else []
    left: dict[str, int] = {}
    for trial_id in proposed:
        left[trial_id] = left.get(trial_id, 0) + 1
    remaining = []
    for position, trial_id in enumerate(planned):
        if left.get(trial_id, 0):
            left[trial_id] -= 1
        else:
            remaining.append(position)
    return remaining
