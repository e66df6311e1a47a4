"""The recipe cache: what the runs of a store know of one question, the best first.

Runs are ranked by their summaries, so that a run's log is read only when its best is next; from
there its other trials follow in their order. Whoever asks stops at the first one that will do.
"""

import heapq
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from schemas.errors import DamagedLog, LogError, RunNotFound
from schemas.evaluation import Evaluation, SignatureHashes, Source
from schemas.events import RunForked, RunStarted
from schemas.model import FrozenModel
from storage.backends import NotStored, SegmentStore
from storage.extent import read_segment, survey
from storage.log import EventLog
from storage.ranking import rank
from storage.reading import sound
from storage.runs import list_runs
from storage.segments import ForeignSegment, TornSegment
from storage.state import State, Trial
from storage.store import Store
from storage.summary import RunSummary


class Question(FrozenModel):
    """What a score answers: on what, and what was asked. A dry score never stands for another."""

    signature: SignatureHashes
    source: Source
    memory_regime: str

    def is_asked_by(self, run: RunSummary) -> bool:
        """Whether the scores of `run` answer this question."""
        return (run.signature, run.source, run.memory_regime) == (
            self.signature,
            self.source,
            self.memory_regime,
        )

    def is_answered_by(self, evaluation: Evaluation) -> bool:
        """Whether an evaluation answers this question, whatever its run says of itself."""
        return (evaluation.signature, evaluation.source, evaluation.memory_regime) == (
            self.signature,
            self.source,
            self.memory_regime,
        )


class FoundWrong(NamedTuple):
    """A correction of a configuration's score: in which run, and when."""

    run_id: str
    at: datetime


class Known(NamedTuple):
    """A trial that some run scored and that may win there."""

    run_id: str
    trial: Trial
    spec: RunStarted
    """Of that run."""
    model: str | None
    """The language model whose call proposed it; None: a rule did."""
    is_recipe: bool
    """It is the best of its run."""
    tokens_per_s_per_gpu: float
    scored_at: datetime
    found_wrong: FoundWrong | None
    """Another run's correction, made after this score: then it is not to be believed."""


class KnownRecipes:
    """The trials of all runs that asked a question, each configuration once, the best first.

    Of equal scores the one of the oldest run is told, and there the lowest number: a trial that a
    fork has from its parent is the parent's. A score that was found wrong in its own run is not
    told. What another run found wrong afterwards is told with that (`found_wrong`); a score made
    after the correction stands, for it was made anew.
    """

    def __init__(
        self, store: Store, question: Question, all_runs: Sequence[RunSummary] | None = None
    ) -> None:
        """`all_runs`: those of the store, if they are listed already."""
        self._store = store
        self._question = question
        self.all_runs = list_runs(store) if all_runs is None else all_runs
        """Every run of the store."""
        self.runs = [r for r in self.all_runs if question.is_asked_by(r) and r.problem is None]
        """Those that asked the question and can be read."""
        self.passed_over = list(_unreadable(self.all_runs, question))
        """Why a run that may have asked it does not count; grows while one goes through."""

    @property
    def scores(self) -> int:
        """How many scores the runs recorded; a fork's own alone."""
        return sum(run.scored - run.inherited_scores for run in self.runs)

    def __iter__(self) -> Iterator[Known]:
        """Each configuration that may win, the best first; logs are read one by one, when due."""
        waiting: list[tuple[tuple[float, int], str, list[Known] | None]] = []
        for run in self.runs:
            if run.best_trial is not None and run.best_tokens_per_s_per_gpu is not None:
                place = rank(0, run.best_tokens_per_s_per_gpu)
                waiting.append((place, run.run_id, None))
        heapq.heapify(waiting)
        told: set[str] = set()
        while waiting:
            _, run_id, known = heapq.heappop(waiting)
            if known is None:
                known = self._of_run(run_id)
            else:
                first = known.pop()
                if first.trial.proposed.trial_id not in told:
                    told.add(first.trial.proposed.trial_id)
                    yield first
            if known:
                place = rank(0, known[-1].tokens_per_s_per_gpu)
                heapq.heappush(waiting, (place, run_id, known))

    def _of_run(self, run_id: str) -> list[Known]:
        """What a run knows, the best last; nothing of one that cannot be read."""
        try:
            state = EventLog.open(self._store, run_id).state()
        except (LogError, RunNotFound) as error:  # the latter: removed a moment ago
            self.passed_over.append(str(error))
            return []
        return [known for trial in reversed(state.ranked()) for known in self._known(state, trial)]

    def _known(self, state: State, trial: Trial) -> Iterator[Known]:
        score, evaluation, decided_at = trial.score, trial.evaluation, trial.decided_at
        if score is None or evaluation is None or decided_at is None:
            return
        if not self._question.is_answered_by(evaluation):
            return
        call = trial.proposed.call
        yield Known(
            run_id=state.run_id,
            trial=trial,
            spec=state.spec,
            model=None if call is None else state.calls[call].event.model,
            is_recipe=state.incumbent == trial.number,
            tokens_per_s_per_gpu=score,
            scored_at=decided_at,
            found_wrong=self._found_wrong(trial.proposed.trial_id, decided_at),
        )

    def _found_wrong(self, trial_id: str, scored_at: datetime) -> FoundWrong | None:
        corrections = [
            FoundWrong(run.run_id, run.found_wrong[trial_id])
            for run in self.runs
            if trial_id in run.found_wrong and run.found_wrong[trial_id] >= scored_at
        ]
        return corrections[0] if corrections else None


def _unreadable(runs: Iterable[RunSummary], question: Question) -> Iterator[str]:
    """Damaged runs, but for those that are known to have asked another question."""
    for run in runs:
        if run.problem is not None and (run.signature is None or question.is_asked_by(run)):
            named = run.problem.startswith("run ")
            yield run.problem if named else f"run {run.run_id}: {run.problem}"


def spec_of_run(backend: SegmentStore, run_id: str) -> RunStarted:
    """What a run depends on, from its own first event alone, which is verified.

    Raises:
        RunNotFound: there is no such run.
        DamagedLog: that event is not there, or not what was written.
    """
    extent = survey(backend, run_id)
    try:
        row = read_segment(backend, run_id, extent.first_seq)[0]
    except (NotStored, TornSegment, ForeignSegment, IndexError) as error:
        raise DamagedLog(f"run {run_id}, event {extent.first_seq}: cannot be read") from error
    event = sound(row)
    if isinstance(event, RunForked):
        return event.spec
    if isinstance(event, RunStarted):
        return event
    raise DamagedLog(f"run {run_id}, event {extent.first_seq}: begins a run with {event.type}")
