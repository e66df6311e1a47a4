"""The fold across forks, calls of a language model and invalidations; the summary beside it."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import DamagedLog
from schemas.events import (
    ZERO_HASH,
    AxesDerived,
    Envelope,
    NoteTaken,
    RunInterrupted,
    RunResumed,
    TailRecovered,
    TrialRejected,
)
from storage import State, fold
from storage.chain import seal
from storage.codec import event_of
from storage.extent import Origin
from storage.ranking import rank
from storage.state import Spent
from storage.summary import RunSummary, summarise
from tests.storage.builders import (
    RUN,
    Clock,
    axes,
    finished,
    proposed,
    rejected,
    round_finished,
    round_started,
    scored,
    started,
)
from tests.storage.lineages import forked, invalidated, llm_called

BUDGET_SPENT = "budget_spent"


class History:
    """A run and its forks as they may happen, event by event; it knows what the fold must say."""

    def __init__(self) -> None:
        self.envelopes: list[Envelope] = []
        self.run_id = RUN
        self._clock = Clock()
        self.add(started())
        self.begin()

    def begin(self) -> None:
        self.scores: dict[int, float] = {}
        self.decided: dict[int, str] = {}
        self.given_up: list[int] = []
        self.open: list[int] = []
        self.calls = self.proposals = 0
        self.round: int | None = None
        self.rounds = 0
        self.has_axes = self.over = False

    def add(self, event: Any, trial: int | None = None) -> None:
        before = self.envelopes[-1] if self.envelopes else None
        self.envelopes.append(
            seal(
                event,
                run_id=self.run_id,
                seq=len(self.envelopes),
                prev_hash=before.hash if before else ZERO_HASH,
                at=self._clock(),
                round=getattr(self, "round", None),
                trial=trial,
            )
        )

    @property
    def best(self) -> int | None:
        return min(self.scores, key=lambda n: rank(n, self.scores[n]), default=None)

    def step(self, pick: Any) -> None:
        """One more event, whichever `pick` takes of those that may come next."""
        getattr(self, f"_{pick(st.sampled_from(self.possible()))}")(pick)

    def possible(self) -> list[str]:
        may = ["note", "recover", "fork", "fork_anew"]
        if self.scores:
            may.append("invalidate")
        if self.over:
            return [*may, "resume"]
        may.append("interrupt")
        if not self.has_axes:
            may.append("derive")
        if self.round is None:
            return [*may, "open_round", "open_round", "finish"]
        may += ["propose"] * 4 + ["call"]
        may += ["decide"] * 6 if self.open else ["close_round"]
        return may

    def _note(self, pick: Any) -> None:
        self.add(NoteTaken(text="n", author="test"))

    def _recover(self, pick: Any) -> None:
        self.add(TailRecovered(discarded=("x",)))

    def _interrupt(self, pick: Any) -> None:
        self.add(RunInterrupted(why="Ctrl-C"))
        self.over = True

    def _resume(self, pick: Any) -> None:
        self.add(RunResumed(refold_version="1", projection_version="1", reopened=True))
        self.over = False

    def _derive(self, pick: Any) -> None:
        self.add(AxesDerived(axes=axes()))
        self.has_axes = True

    def _open_round(self, pick: Any) -> None:
        self.round, self.rounds = self.rounds, self.rounds + 1
        self.add(round_started(3, pick(st.sampled_from(["seed", "llm"]))))

    def _close_round(self, pick: Any) -> None:
        self.add(round_finished(self.best))
        self.round = None

    def _finish(self, pick: Any) -> None:
        self.add(finished(self.best))
        self.over = True

    def _call(self, pick: Any) -> None:
        self.add(llm_called(self.calls, cost_usd=pick(st.sampled_from([None, 0.1, 0.7]))))
        self.calls += 1

    def _propose(self, pick: Any) -> None:
        number = len(self.decided) + len(self.open)
        call = pick(st.integers(0, self.calls - 1)) if self.calls else None
        self.add(proposed(number).model_copy(update={"call": call}), number)
        self.open.append(number)

    def _decide(self, pick: Any) -> None:
        number = self.open.pop(pick(st.integers(0, len(self.open) - 1)))
        how = pick(st.sampled_from(["fits", "does not", "rejected", BUDGET_SPENT]))
        tokens = pick(st.sampled_from([100.0, 200.0, 300.0]))
        if how in ("fits", "does not"):
            self.add(scored(number, tokens_per_s_per_gpu=tokens, fits=how == "fits"), number)
            self.decided[number] = "scored"
            if how == "fits":
                self.scores[number] = tokens
            return
        self.add(rejected(number, how), number)
        self.decided[number] = "rejected"
        if how == BUDGET_SPENT:
            self.given_up.append(number)

    def _invalidate(self, pick: Any) -> None:
        number = pick(st.sampled_from(sorted(self.scores)))
        del self.scores[number]
        best = self.best
        score = None if best is None else self.scores[best]
        self.add(invalidated(number, best, score), number)

    def _fork(self, pick: Any) -> None:
        self._forked(inherits=True, reopened=tuple(self.given_up))
        for number in self.given_up:
            del self.decided[number]
            self.open.append(number)
        self.given_up, self.has_axes, self.over = [], False, False
        if self.open and self.round is None:
            self._open_round(lambda _: "seed")

    def _fork_anew(self, pick: Any) -> None:
        self._forked(inherits=False)
        self.begin()

    def _forked(self, *, inherits: bool, reopened: tuple[int, ...] = ()) -> None:
        last = self.envelopes[-1]
        origin = Origin(last.run_id, last.seq, last.hash)
        self.run_id = f"20260305t000000-{len(self.envelopes):06d}-cccccccc"
        round_number, self.round = self.round, None
        self.add(forked(origin, inherits=inherits, reopened=reopened))
        self.round = round_number


@st.composite
def histories(draw: Any) -> History:
    history = History()
    for _ in range(draw(st.integers(0, 40))):
        history.step(draw)
    return history


@settings(max_examples=60, deadline=None)
@given(histories(), st.data())
def test_folding_in_parts_is_folding_the_whole_across_forks_calls_and_invalidations(
    history: History, data: st.DataObject
) -> None:
    events = history.envelopes
    one, two = sorted(data.draw(st.tuples(*[st.integers(1, len(events))] * 2)))
    in_parts = fold(events[two:], fold(events[one:two], fold(events[:one])))
    assert in_parts == fold(events)


@settings(max_examples=60, deadline=None)
@given(histories())
def test_the_fold_says_what_happened_since_the_last_fork_that_began_anew(history: History) -> None:
    state = fold(history.envelopes)
    assert state.run_id == history.run_id
    assert state.incumbent == history.best
    assert {t.number: t.score for t in state.ranked()} == history.scores
    assert sorted(state.in_flight) == sorted(history.open)
    statuses = {n: t.status for n, t in state.trials.items() if n not in state.in_flight}
    assert statuses == history.decided
    counts = state.conservation
    assert counts.candidates == counts.evaluations + counts.rejections + counts.in_flight
    assert state.spent.llm_calls == len(state.calls) == history.calls
    assert [call.event.call for call in state.calls] == list(range(history.calls))
    assert len(state.rounds) == history.rounds
    assert (state.open_round is None) == (history.round is None)


@settings(max_examples=60, deadline=None)
@given(histories(), st.data())
def test_the_summary_agrees_with_the_fold_and_is_the_same_in_parts(
    history: History, data: st.DataObject
) -> None:
    whole = RunSummary(run_id="whichever is first")
    for envelope in history.envelopes:
        whole = summarise(whole, envelope, event_of(envelope))
    state = fold(history.envelopes)
    assert whole.run_id == state.run_id or not state.forks
    assert (whole.proposed, whole.scored, whole.rejected) == state.conservation[:3]
    assert (whole.best_trial, whole.best_tokens_per_s_per_gpu) == (
        state.incumbent,
        state.best and state.best.score,
    )
    assert whole.best_trial_id == (state.best and state.best.proposed.trial_id)
    assert (whole.events, whole.last_at) == (state.head_seq + 1, state.last_at)
    assert (whole.status, whole.started_at) == (state.status, state.started_at)
    assert whole.rounds == len(state.rounds)
    assert whole.parent == (state.forks[-1].event.parent if state.forks else None)
    # As an anchor keeps it: through JSON, and taken on from there.
    cut = data.draw(st.integers(1, len(history.envelopes)))
    kept = RunSummary(run_id="whichever is first")
    for envelope in history.envelopes[:cut]:
        kept = summarise(kept, envelope, event_of(envelope))
    kept = RunSummary.model_validate(kept.model_dump(mode="json"))
    for envelope in history.envelopes[cut:]:
        kept = summarise(kept, envelope, event_of(envelope))
    assert kept == whole


def recorded(*steps: tuple[Any, int | None]) -> State:
    """A run with an open round, then `steps`."""
    history = History()
    history._derive(None)
    history._open_round(lambda _: "llm")
    for event, trial in steps:
        history.add(event, trial)
    return fold(history.envelopes)


P0, S0, P1, S1 = (proposed(0), 0), (scored(0), 0), (proposed(1), 1), (scored(1), 1)


def test_an_invalidated_trial_stays_scored_and_cannot_win() -> None:
    state = recorded(P0, S0, P1, S1, (invalidated(1, 0, 3000.0), 1))
    assert (state.incumbent, state.trials[1].status) == (0, "scored")
    assert state.trials[1].evaluation == scored(1).evaluation
    assert state.trials[1].score is None
    assert state.spent.perf_calls == 2
    again = recorded(
        P0, S0, P1, S1, (invalidated(1, 0, 3000.0), 1), (invalidated(0, None, None), 0)
    )
    assert again.incumbent is None


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ([P0, (invalidated(0, None, None), 0)], "which has no score"),
        ([P0, S0, (invalidated(0, None, None), 7)], "which has no score"),
        ([P0, S0, (invalidated(1, None, None), 0)], "which has no score"),
        ([P0, S0, (invalidated(0, 0, 3000.0), 0)], "says that the best is then trial 0"),
        ([P0, S0, P1, S1, (invalidated(1, 0, 1.0), 1)], "says that the best is then trial 0"),
        ([P0, S0, *[(invalidated(0, None, None), 0)] * 2], "a second time"),
        ([(llm_called(1), None)], "is call 1; call 0 is next"),
        ([(llm_called(0), None)] * 2, "is call 0; call 1 is next"),
        ([(proposed(0).model_copy(update={"call": 0}), 0)], "names call 0, which was not made"),
        ([(round_finished(), None), (llm_called(0), None)], "which is not open"),
    ],
)
def test_what_cannot_have_happened_is_refused(steps: list[Any], says: str) -> None:
    with pytest.raises(DamagedLog, match=says):
        recorded(*steps)


@pytest.mark.parametrize("change", ["parent", "parent_seq", "parent_hash", "reopened"])
def test_a_fork_that_does_not_fit_its_parent_is_refused(change: str) -> None:
    history = History()
    history._derive(None)
    last = history.envelopes[-1]
    wrong = {"parent": "x", "parent_seq": 0, "parent_hash": "0" * 64, "reopened": (3,)}
    event = forked(Origin(last.run_id, last.seq, last.hash))
    history.run_id = "20260305t000000-000000-cccccccc"
    history.add(event.model_copy(update={change: wrong[change]}))
    with pytest.raises(DamagedLog, match="event 2: RunForked"):
        fold(history.envelopes)


def test_a_run_does_not_finish_before_what_a_fork_reopened_is_decided() -> None:
    history = History()
    history._open_round(lambda _: "seed")
    given_up = TrialRejected(trial_id=proposed(0).trial_id, code=BUDGET_SPENT, reason="spent")
    for event, trial in (P0, (given_up, 0), (round_finished(), None)):
        history.add(event, trial)
    last = history.envelopes[-1]
    history.run_id = "20260305t000000-000000-cccccccc"
    history.add(forked(Origin(last.run_id, last.seq, last.hash), reopened=(0,)))
    history.add(finished())
    with pytest.raises(DamagedLog, match="with trials undecided: 0"):
        fold(history.envelopes)


def test_a_fork_that_begins_anew_carries_what_was_proposed() -> None:
    history = History()
    history._open_round(lambda _: "seed")
    for event, trial in (P0, S0, P1):
        history.add(event, trial)
    history._fork_anew(None)
    state = fold(history.envelopes)
    assert [(t.number, t.status) for t in state.carried] == [(0, "scored"), (1, "proposed")]
    assert (state.trials, state.rounds, state.axes, state.in_flight) == ({}, (), None, ())
    assert state.spent == Spent()


def test_calls_cost_what_they_say_and_a_fork_goes_on_counting() -> None:
    history = History()
    history._open_round(lambda _: "llm")
    failed = llm_called(1, answer_blob=None, failure="timeout", cost_usd=None, output_tokens=None)
    history.add(llm_called(0))
    history.add(failed)
    history.calls = 2
    history._fork(None)
    history.add(llm_called(2))
    state = fold(history.envelopes)
    assert (state.spent.llm_calls, state.spent.llm_tokens) == (3, 110 + 101 + 112)
    assert state.spent.llm_cost_usd == pytest.approx(0.2)
    assert [call.run_id for call in state.calls] == [RUN, RUN, history.run_id]


def test_a_reopened_trial_may_be_decided_again_and_only_it() -> None:
    history = History()
    history._open_round(lambda _: "seed")
    given_up = TrialRejected(trial_id=proposed(1).trial_id, code=BUDGET_SPENT, reason="spent")
    for event, trial in (P0, S0, P1, (given_up, 1)):
        history.add(event, trial)
    history.decided, history.given_up = {0: "scored", 1: "rejected"}, [1]
    history._fork(None)
    state = fold(history.envelopes)
    assert (state.in_flight, state.trials[1].status) == ((1,), "proposed")
    history.add(*S1)
    assert fold(history.envelopes).incumbent == 1
    history.add(*S0)
    with pytest.raises(DamagedLog, match="decides trial 0, which is scored already"):
        fold(history.envelopes)
