from collections.abc import Callable
from datetime import timedelta

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
)
from schemas.night import NightStarted
from storage import Entry, State, fold, folding, nights
from storage.chain import seal
from storage.codec import event_types
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
    whole_run,
)

Events = list[Entry]
OPENING: Events = [Entry(started()), Entry(AxesDerived(axes=axes())), Entry(round_started(9), 0)]


def recorded(entries: Events) -> list[Envelope]:
    """Envelopes as a log would seal them."""
    envelopes: list[Envelope] = []
    prev_hash, clock = ZERO_HASH, Clock()
    for seq, (event, round_number, trial) in enumerate(entries):
        at = clock()
        envelopes.append(
            seal(
                event,
                run_id=RUN,
                seq=seq,
                prev_hash=prev_hash,
                at=at,
                round=round_number,
                trial=trial,
            )
        )
        prev_hash = envelopes[-1].hash
    return envelopes


def flat(batches: list[Events]) -> Events:
    return [entry for batch in batches for entry in batch]


def state_of(*entries: Entry) -> State:
    return fold(recorded([*OPENING, *entries]))


# A search as any proposer may run it: each candidate decided in some order, or not at all.
verdicts = st.lists(
    st.tuples(
        st.sampled_from(["scored", "does_not_fit", "rejected", "in flight"]),
        st.sampled_from([100.0, 200.0, 300.0]),
    ),
    max_size=9,
)


def searched(drawn: list[tuple[str, float]]) -> Events:
    entries = list(OPENING)
    late: Events = []
    for number, (verdict, tokens) in enumerate(drawn):
        entries.append(Entry(proposed(number), 0, number))
        if verdict == "rejected":
            entries.append(Entry(rejected(number), 0, number))
        elif verdict != "in flight":
            score = scored(number, tokens_per_s_per_gpu=tokens, fits=verdict == "scored")
            late.append(Entry(score, 0, number))
    return [*entries, *late]


@settings(max_examples=60, deadline=None)
@given(verdicts)
def test_p16_every_candidate_is_scored_or_rejected_or_in_flight(
    drawn: list[tuple[str, float]],
) -> None:
    envelopes = recorded(searched(drawn))
    for length in range(1, len(envelopes) + 1):
        counts = fold(envelopes[:length]).conservation
        assert counts.candidates == counts.evaluations + counts.rejections + counts.in_flight
    assert counts.candidates == len(drawn)
    assert counts.in_flight == sum(verdict == "in flight" for verdict, _ in drawn)


@settings(max_examples=40, deadline=None)
@given(verdicts, st.data())
def test_folding_in_parts_is_folding_the_whole(
    drawn: list[tuple[str, float]], data: st.DataObject
) -> None:
    envelopes = recorded(searched(drawn))
    cut = data.draw(st.integers(1, len(envelopes)))
    assert fold(envelopes[cut:], start=fold(envelopes[:cut])) == fold(envelopes)


@settings(max_examples=60, deadline=None)
@given(verdicts)
def test_the_incumbent_is_the_best_fitting_trial_ties_to_the_lowest_number(
    drawn: list[tuple[str, float]],
) -> None:
    envelopes = recorded(searched(drawn))
    state = fold(envelopes)
    fitting = [(-t, n) for n, (verdict, t) in enumerate(drawn) if verdict == "scored"]
    assert state.incumbent == (min(fitting)[1] if fitting else None)
    assert [t.number for t in state.ranked()] == [n for _, n in sorted(fitting)]


@settings(max_examples=30, deadline=None)
@given(verdicts)
def test_the_summary_of_a_run_agrees_with_its_fold(drawn: list[tuple[str, float]]) -> None:
    summary = RunSummary(run_id=RUN)
    entries = searched(drawn)
    for envelope, entry in zip(recorded(entries), entries, strict=True):
        summary = summarise(summary, envelope, entry.event)
    state = fold(recorded(entries))
    counts = state.conservation
    assert summary.best_trial == state.incumbent
    assert summary.best_tokens_per_s_per_gpu == (state.best and state.best.score)
    assert (summary.proposed, summary.scored, summary.rejected) == counts[:3]
    assert (summary.events, summary.last_at) == (state.head_seq + 1, state.last_at)


def test_a_baseline_that_does_not_fit_is_scored_and_never_the_incumbent() -> None:
    state = state_of(
        Entry(proposed(0), 0, 0),
        Entry(scored(0, tokens_per_s_per_gpu=9999.0, fits=False), 0, 0),
        Entry(proposed(1), 0, 1),
        Entry(scored(1, tokens_per_s_per_gpu=1.0), 0, 1),
    )
    assert state.baseline is not None
    assert state.baseline.status == "scored"
    assert state.incumbent == 1


@pytest.mark.parametrize(
    "changes",
    [{"legal": False, "fits": None}, {"fits": None}, {"tokens_per_s_per_gpu": None}],
)
def test_what_is_illegal_unfitting_or_untimed_never_wins(changes: dict[str, object]) -> None:
    state = state_of(Entry(proposed(0), 0, 0), Entry(scored(0, **changes), 0, 0))
    assert state.incumbent is None


def test_the_state_knows_what_happened() -> None:
    state = fold(recorded(flat(whole_run(4))))
    assert state.spec == started()
    assert state.axes == axes()
    assert [t.status for t in state.trials.values()] == ["scored", "scored", "rejected", "scored"]
    assert state.incumbent == 3
    assert state.rounds[0].trials == (0, 1, 2, 3)
    assert state.rounds[0].finished == round_finished(3)
    assert state.notes[0].text == "done"
    assert state.finished == finished(3)
    assert state.status == "finished"
    assert (state.head_seq, state.in_flight) == (13, ())


def test_the_budget_counts_seeds_proposals_and_calls_apart() -> None:
    state = state_of(
        Entry(proposed(0), 0, 0),
        Entry(scored(0), 0, 0),
        Entry(proposed(1), 0, 1),
        Entry(rejected(1), 0, 1),
        Entry(round_finished(0), 0),
        Entry(round_started(2, "llm"), 1),
        Entry(proposed(2), 1, 2),
        Entry(scored(2, source="benchmark"), 1, 2),
    )
    spent = state.spent
    assert (spent.seeds, spent.proposals) == (2, 1)
    assert (spent.perf_calls, spent.benchmark_calls, spent.rounds) == (2, 1, 1)


def test_a_cached_score_costs_what_a_fresh_one_does() -> None:
    fresh = state_of(Entry(proposed(0), 0, 0), Entry(scored(0), 0, 0))
    hit = scored(0).model_copy(update={"from_cache": True})
    cached = state_of(Entry(proposed(0), 0, 0), Entry(hit, 0, 0))
    assert fresh.spent == cached.spent


def test_wall_clock_leaves_out_the_time_between_processes() -> None:
    entries = [*OPENING, Entry(TailRecovered(discarded=("x",))), Entry(resumed()), NOTE]
    envelopes = recorded(entries)
    gap = timedelta(days=3)
    moved = [e if e.seq < 3 else e._replace(at=e.at + gap) for e in envelopes]
    assert fold(moved).spent.wall_clock_s == pytest.approx(3.0, abs=0.001)


def resumed(*, reopened: bool = False) -> RunResumed:
    return RunResumed(refold_version="0.1.0", projection_version="1", reopened=reopened)


NOTE = Entry(NoteTaken(text="a note", author="test"), 0)
P0, S0 = Entry(proposed(0), 0, 0), Entry(scored(0), 0, 0)

IMPOSSIBLE: dict[str, tuple[Events, str]] = {
    "no_start": ([NOTE], "a run begins with RunStarted"),
    "second_start": ([*OPENING, Entry(started())], "starts the run a second time"),
    "second_axes": ([*OPENING, OPENING[1]], "derives the axes a second time"),
    "scored_never_proposed": ([*OPENING, S0], "decides trial 0, which was never proposed"),
    "rejected_never_proposed": ([*OPENING, Entry(rejected(7), 0, 7)], "never proposed"),
    "scored_twice": ([*OPENING, P0, S0, S0], "decides trial 0, which is scored already"),
    "rejected_after_scored": ([*OPENING, P0, S0, Entry(rejected(0), 0, 0)], "scored already"),
    "scored_after_rejected": ([*OPENING, P0, Entry(rejected(0), 0, 0), S0], "rejected already"),
    "scored_without_number": ([*OPENING, P0, Entry(scored(0), 0)], "never proposed"),
    "scored_under_another_id": ([*OPENING, P0, Entry(scored(1), 0, 0)], "under another id"),
    "proposed_twice": ([*OPENING, P0, P0], "proposes trial 0 a second time"),
    "proposed_without_number": ([*OPENING, Entry(proposed(0), 0)], "without a number"),
    "proposed_outside_a_round": ([*OPENING[:2], P0], "round 0, which is not open"),
    "proposed_in_another_round": ([*OPENING, Entry(proposed(0), 1, 0)], "round 1, which is not"),
    "round_in_a_round": ([*OPENING, Entry(round_started(1), 1)], "a round within a round"),
    "round_without_number": ([*OPENING[:2], Entry(round_started(1))], "names no round"),
    "round_finished_twice": (
        [*OPENING, Entry(round_finished(), 0), Entry(round_finished(), 0)],
        "finishes round 0, which is not open",
    ),
    "round_finished_undecided": (
        [*OPENING, P0, Entry(round_finished(), 0)],
        "with trials undecided: 0",
    ),
    "same_round_again": (
        [*OPENING, Entry(round_finished(), 0), Entry(round_started(1), 0)],
        "begins round 0 after 0",
    ),
    "finished_within_a_round": ([*OPENING, Entry(finished())], "within a round"),
    "trial_after_the_finish": (
        [*flat(whole_run(1)), Entry(proposed(5), 0, 5)],
        "comes after RunFinished, and the run was not resumed",
    ),
    "finished_twice": ([*flat(whole_run(1)), Entry(finished())], "comes after RunFinished"),
    "resumed_finish_unopened": ([*flat(whole_run(1)), Entry(resumed())], "without reopening it"),
    "trial_after_an_interruption": (
        [*OPENING, Entry(RunInterrupted(why="Ctrl-C")), P0],
        "comes after RunInterrupted, and the run was not resumed",
    ),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_impossible_histories_are_refused_by_the_event(name: str) -> None:
    entries, said = IMPOSSIBLE[name]
    envelopes = recorded(entries)
    with pytest.raises(DamagedLog, match=said) as caught:
        fold(envelopes)
    assert f"event {len(envelopes) - 1}:" in str(caught.value)


def test_an_evaluation_of_another_trial_is_refused() -> None:
    foreign = scored(0).model_copy(update={"evaluation": scored(1).evaluation})
    with pytest.raises(DamagedLog, match="scores with the evaluation of"):
        state_of(P0, Entry(foreign, 0, 0))


def test_no_event_at_all_is_no_run() -> None:
    with pytest.raises(DamagedLog, match="holds no event"):
        fold([])


@pytest.mark.parametrize(
    ("pick", "said"),
    [
        (lambda e: [e[0], e[2]], "event 1: is missing; 2 follows"),
        (lambda e: [e[0], e[1], e[1]], "event 2: is missing; 1 follows"),
        (lambda e: [e[0], e[1]._replace(prev_hash="0" * 64)], "does not follow"),
        (lambda e: [e[0], e[1]._replace(run_id="another")], "belongs to run another"),
    ],
)
def test_envelopes_out_of_order_are_refused(
    pick: Callable[[list[Envelope]], list[Envelope]], said: str
) -> None:
    with pytest.raises(DamagedLog, match=said):
        fold(pick(recorded(OPENING)))


def test_a_finished_run_may_be_reopened() -> None:
    entries = [
        *flat(whole_run(1)),
        Entry(resumed(reopened=True)),
        Entry(round_started(1, "llm"), 1),
        Entry(proposed(1), 1, 1),
    ]
    state = fold(recorded(entries))
    assert state.finished is None
    assert state.in_flight == (1,)
    assert state.status == "open"


def test_an_interrupted_run_goes_on_when_resumed() -> None:
    interrupted = [*OPENING, P0, Entry(RunInterrupted(why="Ctrl-C"))]
    assert fold(recorded(interrupted)).interrupted == RunInterrupted(why="Ctrl-C")
    assert fold(recorded(interrupted)).status == "interrupted"
    state = fold(recorded([*interrupted, Entry(resumed()), S0]))
    assert state.interrupted is None
    assert len(state.resumed) == 1
    assert state.incumbent == 0


def test_notes_and_recoveries_may_follow_the_finish() -> None:
    late = [Entry(NoteTaken(text="late", author="x")), Entry(TailRecovered(discarded=("tmp",)))]
    state = fold(recorded([*flat(whole_run(1)), *late]))
    assert state.finished is not None
    assert state.notes[-1].text == "late"


def test_every_event_has_its_step_in_the_fold() -> None:
    of_nights = {type_ for type_ in event_types().values() if type_.__module__ == "schemas.night"}
    assert of_nights == nights._STEPS.keys() | {NightStarted}
    assert set(folding._STEPS) == set(event_types().values()) - of_nights
