"""The fold: from a run's events to its state. Pure, and the same whether taken whole or in parts:
`fold(a + b) == fold(b, start=fold(a))`."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

from schemas.errors import DamagedLog
from schemas.events import (
    AxesDerived,
    BudgetSpent,
    CodeRan,
    Envelope,
    Event,
    LLMCalled,
    NoteTaken,
    RecipeRecalled,
    RoundFinished,
    RoundStarted,
    RunFinished,
    RunForked,
    RunInterrupted,
    RunResumed,
    RunStarted,
    TailRecovered,
    ToolCalled,
    TrialInvalidated,
    TrialProposed,
    TrialRejected,
    TrialScored,
)
from schemas.legality import LegalAxes
from storage.codec import event_of
from storage.collection import cycle_collection_paused
from storage.ranking import rank
from storage.reading import BadEvent, Record
from storage.state import Call, ForkPoint, Note, Round, Spent, State, Trial

_MEASURED = ("benchmark", "both")


def fold(envelopes: Iterable[Envelope], start: State | None = None) -> State:
    """The state after `envelopes`, taken on from `start` (default: from the beginning).

    Raises:
        DamagedLog: an event that cannot follow those before it, named; or there is none at all.
        UnknownEvent: an event is newer than this Refold.
    """
    with cycle_collection_paused():
        return fold_records((Record(e, event_of(e)) for e in envelopes), start)


def fold_records(records: Iterable[Record], start: State | None = None) -> State:
    """`fold`, for envelopes whose events are decoded already."""
    folder: _Folder | None = None if start is None else _Folder.on(start)
    for envelope, event in records:
        if folder is None:
            folder = _Folder.first(envelope, event)
        else:
            folder.follow(envelope, event)
    if folder is None:
        raise DamagedLog("the run holds no event")
    return folder.state()


class _Folder:
    """The state under construction; `State` is its frozen copy."""

    def __init__(self, run_id: str, spec: RunStarted, started_at: datetime) -> None:
        self.run_id, self.spec, self.started_at = run_id, spec, started_at
        self.seq, self.hash, self.last_at = -1, "", started_at
        self.finished: RunFinished | None = None
        self.interrupted: RunInterrupted | None = None
        self.resumed: list[RunResumed] = []
        self.recoveries: list[TailRecovered] = []
        self.forks: list[ForkPoint] = []
        self.carried: tuple[Trial, ...] = ()
        self.earlier_rounds = 0
        self.begin()

    def begin(self) -> None:
        """Nothing of a search is known yet."""
        self.axes: LegalAxes | None = None
        self.recalled: RecipeRecalled | None = None
        self.rounds: list[Round] = []
        self.trials: dict[int, Trial] = {}
        self.open_trials: dict[int, None] = {}
        self.round_trials: list[int] = []
        self.incumbent: tuple[float, int] | None = None
        self.notes: list[Note] = []
        self.calls: list[Call] = []
        self.stop: str | None = None
        self.llm_tokens = 0
        self.llm_cost_usd = 0.0
        self.seeds = self.proposals = self.perf_calls = self.benchmark_calls = 0
        self.spent_rounds = 0
        self.wall_clock_s = 0.0

    @classmethod
    def first(cls, envelope: Envelope, event: Event) -> "_Folder":
        if envelope.seq != 0 or not isinstance(event, RunStarted):
            raise BadEvent(
                envelope.run_id, envelope.seq, f"a run begins with RunStarted, not {event.type}"
            )
        folder = cls(envelope.run_id, event, envelope.at)
        folder.seq, folder.hash = 0, envelope.hash
        return folder

    @classmethod
    def on(cls, start: State) -> "_Folder":
        folder = cls(start.run_id, start.spec, start.started_at)
        folder.seq, folder.hash, folder.last_at = start.head_seq, start.head_hash, start.last_at
        folder.axes, folder.recalled = start.axes, start.recalled
        folder.rounds = list(start.rounds)
        folder.trials = dict(start.trials)
        folder.open_trials = dict.fromkeys(start.in_flight)
        folder.round_trials = list(start.open_round.trials) if start.open_round else []
        best = start.best
        if best is not None and best.score is not None:
            folder.incumbent = rank(best.number, best.score)
        folder.notes = list(start.notes)
        folder.finished, folder.interrupted = start.finished, start.interrupted
        folder.resumed = list(start.resumed)
        folder.recoveries = list(start.recoveries)
        spent = start.spent
        folder.seeds, folder.proposals = spent.seeds, spent.proposals
        folder.perf_calls, folder.benchmark_calls = spent.perf_calls, spent.benchmark_calls
        folder.spent_rounds, folder.wall_clock_s = spent.rounds, spent.wall_clock_s
        folder.llm_tokens, folder.llm_cost_usd = spent.llm_tokens, spent.llm_cost_usd
        folder.calls, folder.stop = list(start.calls), start.stop
        folder.forks, folder.carried = list(start.forks), start.carried
        folder.earlier_rounds = start.earlier_rounds
        return folder

    def state(self) -> State:
        rounds = list(self.rounds)
        if rounds and rounds[-1].finished is None:
            rounds[-1] = replace(rounds[-1], trials=tuple(self.round_trials))
        return State(
            run_id=self.run_id,
            head_seq=self.seq,
            head_hash=self.hash,
            spec=self.spec,
            started_at=self.started_at,
            last_at=self.last_at,
            axes=self.axes,
            rounds=tuple(rounds),
            trials=MappingProxyType(dict(self.trials)),
            incumbent=None if self.incumbent is None else self.incumbent[1],
            notes=tuple(self.notes),
            finished=self.finished,
            interrupted=self.interrupted,
            resumed=tuple(self.resumed),
            recoveries=tuple(self.recoveries),
            spent=Spent(
                seeds=self.seeds,
                proposals=self.proposals,
                perf_calls=self.perf_calls,
                benchmark_calls=self.benchmark_calls,
                rounds=self.spent_rounds,
                llm_calls=len(self.calls),
                llm_tokens=self.llm_tokens,
                llm_cost_usd=self.llm_cost_usd,
                wall_clock_s=self.wall_clock_s,
            ),
            in_flight=tuple(self.open_trials),
            stop=self.stop,
            calls=tuple(self.calls),
            forks=tuple(self.forks),
            earlier_rounds=self.earlier_rounds,
            carried=self.carried,
            recalled=self.recalled,
        )

    def follow(self, envelope: Envelope, event: Event) -> None:
        kind = type(event)
        if (envelope.run_id != self.run_id) != (kind is RunForked):
            raise BadEvent(self.run_id, envelope.seq, f"belongs to run {envelope.run_id}")
        if envelope.seq != self.seq + 1:
            raise BadEvent(self.run_id, self.seq + 1, f"is missing; {envelope.seq} follows")
        if envelope.prev_hash != self.hash:
            raise BadEvent(self.run_id, envelope.seq, "does not follow the event before it")
        if kind not in _AFTER_A_GAP:
            self.wall_clock_s += max(0.0, (envelope.at - self.last_at).total_seconds())
        if kind not in _AT_ANY_TIME:
            self._must_run(envelope)
        step = _STEPS.get(kind)
        if step is None:
            self._impossible(envelope, "is an event of a night, not of a run")
        else:
            step(self, envelope, event)
        self.seq, self.hash, self.last_at = envelope.seq, envelope.hash, envelope.at

    def _must_run(self, envelope: Envelope) -> None:
        """The events of a search: only a running run has them."""
        if self.finished is not None:
            self._impossible(envelope, "comes after RunFinished, and the run was not resumed")
        if self.interrupted is not None:
            self._impossible(envelope, "comes after RunInterrupted, and the run was not resumed")

    def _recovered(self, _: Envelope, event: TailRecovered) -> None:
        self.recoveries.append(event)

    def _noted(self, envelope: Envelope, event: NoteTaken) -> None:
        note = Note(event.text, event.author, envelope.at, envelope.round, envelope.trial)
        self.notes.append(note)

    def _resumed(self, envelope: Envelope, event: RunResumed) -> None:
        if self.finished is not None and not event.reopened:
            self._impossible(envelope, "resumes a finished run without reopening it")
        self.finished = self.interrupted = None
        self.resumed.append(event)
        if event.reopened:
            self.earlier_rounds = len(self.rounds)
        if event.llm is not None:
            search = self.spec.search.model_copy(update={"llm": event.llm})
            self.spec = self.spec.model_copy(update={"search": search})

    def _forked(self, envelope: Envelope, event: RunForked) -> None:
        if (event.parent, event.parent_seq, event.parent_hash) != (
            self.run_id,
            self.seq,
            self.hash,
        ):
            self._impossible(envelope, "continues another event than the one before it")
        known = self._known(event.carry)
        self.run_id, self.spec, self.started_at = envelope.run_id, event.spec, envelope.at
        self.finished = self.interrupted = None
        self.earlier_rounds = len(self.rounds) if event.inherits else 0
        self.forks.append(ForkPoint(envelope.run_id, envelope.seq, event))
        self.axes = None
        if not event.inherits:
            self.begin()
            self.carried = known
            return
        self.stop = None
        for number in event.reopened:
            trial = self.trials.get(number)
            if trial is None or trial.rejected is None:
                self._impossible(envelope, f"reopens trial {number}, which was not rejected")
            else:
                self.trials[number] = replace(trial, rejected=None, decided_at=None)
                self.open_trials[number] = None

    def _known(self, carry: int | None) -> tuple[Trial, ...]:
        """The trials that a fork without their scores asks again: all, or the best `carry`."""
        if carry is None:
            return tuple(self.trials.values())
        # The baseline is asked first in any case: it takes none of the places.
        scores = [(t.score, t) for t in self.trials.values() if t.number != 0]
        ranked = [(rank(t.number, score), t) for score, t in scores if score is not None]
        return tuple(trial for _, trial in sorted(ranked, key=lambda pair: pair[0])[:carry])

    def _invalidated(self, envelope: Envelope, event: TrialInvalidated) -> None:
        trial = None if envelope.trial is None else self.trials.get(envelope.trial)
        if trial is None or trial.scored is None or trial.proposed.trial_id != event.trial_id:
            self._impossible(envelope, f"invalidates trial {envelope.trial}, which has no score")
            return
        if trial.invalidated is not None:
            self._impossible(envelope, f"invalidates trial {trial.number} a second time")
        self.trials[trial.number] = replace(trial, invalidated=event)
        scores = [(t.number, t.score) for t in self.trials.values()]
        self.incumbent = min((rank(n, s) for n, s in scores if s is not None), default=None)
        said = event.incumbent, event.incumbent_trial_id, event.incumbent_tokens_per_s_per_gpu
        if said != self._best():
            self._impossible(envelope, f"says that the best is then trial {event.incumbent}")

    def _best(self) -> tuple[int | None, str | None, float | None]:
        if self.incumbent is None:
            return None, None, None
        trial = self.trials[self.incumbent[1]]
        return trial.number, trial.proposed.trial_id, trial.score

    def _started_again(self, envelope: Envelope, _: RunStarted) -> None:
        self._impossible(envelope, "starts the run a second time")

    def _recalled(self, envelope: Envelope, event: RecipeRecalled) -> None:
        if self.axes is not None or self.rounds:
            self._impossible(envelope, "recalls a recipe after the search has begun")
        elif self.recalled is not None:
            self._impossible(envelope, "recalls a recipe a second time")
        self.recalled = event

    def _axes_derived(self, envelope: Envelope, event: AxesDerived) -> None:
        if self.axes is not None:
            self._impossible(envelope, "derives the axes a second time")
        self.axes = event.axes

    def _budget_spent(self, _: Envelope, event: BudgetSpent) -> None:
        self.stop = event.why

    def _interrupted(self, _: Envelope, event: RunInterrupted) -> None:
        self.interrupted = event

    def _finished(self, envelope: Envelope, event: RunFinished) -> None:
        if self._round() is not None:
            self._impossible(envelope, "finishes the run within a round")
        if self.open_trials:
            self._undecided(envelope, "the run")
        self.finished = event

    def _rejected(self, envelope: Envelope, event: TrialRejected) -> None:
        self._decided(envelope, event.trial_id, rejected=event)

    def _round(self) -> Round | None:
        if self.rounds and self.rounds[-1].finished is None:
            return self.rounds[-1]
        return None

    def _round_started(self, envelope: Envelope, event: RoundStarted) -> None:
        number = envelope.round
        if number is None or number < 0:
            self._impossible(envelope, "names no round")
        elif self._round() is not None:
            self._impossible(envelope, "begins a round within a round")
        elif self.rounds and number <= self.rounds[-1].number:
            self._impossible(envelope, f"begins round {number} after {self.rounds[-1].number}")
        else:
            self.rounds.append(Round(number, event, envelope.at))
            self.round_trials = []
            if event.proposer != "seed":
                self.spent_rounds += 1

    def _round_finished(self, envelope: Envelope, event: RoundFinished) -> None:
        current = self._round()
        if current is None or envelope.round != current.number:
            self._impossible(envelope, f"finishes round {envelope.round}, which is not open")
        elif self.open_trials:
            self._undecided(envelope, "a round")
        else:
            self.rounds[-1] = replace(
                current,
                trials=tuple(self.round_trials),
                finished=event,
                finished_at=envelope.at,
            )

    def _undecided(self, envelope: Envelope, what: str) -> None:
        undecided = ", ".join(map(str, self.open_trials))
        self._impossible(envelope, f"finishes {what} with trials undecided: {undecided}")

    def _of_open_round(self, envelope: Envelope, _: Event) -> None:
        current = self._round()
        if current is None or envelope.round != current.number:
            self._impossible(envelope, f"is of round {envelope.round}, which is not open")

    def _called(self, envelope: Envelope, event: LLMCalled) -> None:
        self._of_open_round(envelope, event)
        if event.call != len(self.calls):
            self._impossible(envelope, f"is call {event.call}; call {len(self.calls)} is next")
        self.calls.append(Call(event, envelope.run_id, envelope.at, envelope.round))
        self.llm_tokens += (event.input_tokens or 0) + (event.output_tokens or 0)
        self.llm_cost_usd += event.cost_usd or 0.0

    def _proposed(self, envelope: Envelope, event: TrialProposed) -> None:
        current, number = self._round(), envelope.trial
        if current is None or envelope.round != current.number:
            self._impossible(envelope, f"proposes in round {envelope.round}, which is not open")
        elif number is None or number < 0:
            self._impossible(envelope, "proposes a trial without a number")
        elif number in self.trials:
            self._impossible(envelope, f"proposes trial {number} a second time")
        elif event.call is not None and not 0 <= event.call < len(self.calls):
            self._impossible(envelope, f"names call {event.call}, which was not made")
        else:
            self.trials[number] = Trial(number, current.number, event, envelope.at)
            self.open_trials[number] = None
            self.round_trials.append(number)
            if current.started.proposer == "seed":
                self.seeds += 1
            else:
                self.proposals += 1

    def _scored(self, envelope: Envelope, event: TrialScored) -> None:
        trial = self._decided(envelope, event.trial_id, scored=event)
        if event.evaluation.trial_id != event.trial_id:
            self._impossible(envelope, f"scores with the evaluation of {event.evaluation.trial_id}")
        self.perf_calls += 1
        self.benchmark_calls += event.evaluation.source in _MEASURED
        if trial.score is not None:
            place = rank(trial.number, trial.score)
            if self.incumbent is None or place < self.incumbent:
                self.incumbent = place

    def _decided(
        self,
        envelope: Envelope,
        trial_id: str,
        *,
        rejected: TrialRejected | None = None,
        scored: TrialScored | None = None,
    ) -> Trial:
        number = envelope.trial
        trial = None if number is None else self.trials.get(number)
        if trial is None:
            raise BadEvent(
                self.run_id,
                envelope.seq,
                f"{envelope.type} decides trial {number}, which was never proposed",
            )
        if trial.number not in self.open_trials:
            self._impossible(envelope, f"decides trial {number}, which is {trial.status} already")
        if trial.proposed.trial_id != trial_id:
            self._impossible(envelope, f"decides trial {number} under another id, {trial_id}")
        decided = Trial(
            trial.number,
            trial.round,
            trial.proposed,
            trial.proposed_at,
            rejected,
            scored,
            envelope.at,
        )
        self.trials[trial.number] = decided
        del self.open_trials[trial.number]
        return decided

    def _impossible(self, envelope: Envelope, what: str) -> None:
        raise BadEvent(self.run_id, envelope.seq, f"{envelope.type} {what}")


_STEPS: dict[type[Event], Callable[[_Folder, Envelope, Any], None]] = {
    RunStarted: _Folder._started_again,
    RunForked: _Folder._forked,
    RecipeRecalled: _Folder._recalled,
    AxesDerived: _Folder._axes_derived,
    RoundStarted: _Folder._round_started,
    TrialProposed: _Folder._proposed,
    TrialRejected: _Folder._rejected,
    TrialScored: _Folder._scored,
    TrialInvalidated: _Folder._invalidated,
    LLMCalled: _Folder._called,
    ToolCalled: _Folder._of_open_round,
    CodeRan: _Folder._of_open_round,
    BudgetSpent: _Folder._budget_spent,
    NoteTaken: _Folder._noted,
    RoundFinished: _Folder._round_finished,
    RunInterrupted: _Folder._interrupted,
    RunResumed: _Folder._resumed,
    TailRecovered: _Folder._recovered,
    RunFinished: _Folder._finished,
}
"""What each event changes. Looked up by type: `match` would ask pydantic about each class in turn,
which takes half of the time of a fold."""

_AFTER_A_GAP = frozenset({RunResumed, RunForked, TailRecovered, TrialInvalidated})
"""Before these the process was dead: the time since the event before does not count."""

_AT_ANY_TIME = frozenset({RunResumed, RunForked, TailRecovered, TrialInvalidated, NoteTaken})
"""These may also follow the end of a run, or its interruption."""
