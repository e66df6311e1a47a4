"""Two runs side by side: they are identical, or the first thing that is not is named."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.comparison import Comparison, Setting
from schemas.events import ZERO_HASH, Event
from storage import Entry, EventLog
from storage.chain import seal
from storage.comparison import compare
from storage.reading import Record
from tests.storage.builders import (
    Clock,
    finished,
    proposed,
    rejected,
    round_finished,
    round_started,
    scored,
    started,
)
from tests.storage.forked_runs import CHILD, OTHER, PARENT, child_run, other_run, parent_run

COUNT = 5


def run(run_id: str, verdicts: dict[int, Event] | None = None, count: int = COUNT) -> list[Record]:
    """A finished run of `count` trials, every third one rejected unless `verdicts` says so."""
    entries = [Entry(started()), Entry(round_started(count), 0)]
    for number in range(count):
        verdict: Event = rejected(number) if number % 3 == 2 else scored(number)
        verdict = (verdicts or {}).get(number, verdict)
        entries += [Entry(proposed(number), 0, number), Entry(verdict, 0, number)]
    entries += [Entry(round_finished(), 0), Entry(finished())]
    found, prev, clock = [], ZERO_HASH, Clock()
    for seq, (event, round_number, trial) in enumerate(entries):
        envelope = seal(
            event,
            run_id=run_id,
            seq=seq,
            prev_hash=prev,
            at=clock(),
            round=round_number,
            trial=trial,
        )
        prev = envelope.hash
        found.append(Record(envelope, event))
    return found


def compared(a: list[Record], b: list[Record], *settings: Setting) -> Comparison:
    return compare(a, b, settings, ())


def test_runs_that_found_the_same_are_identical():
    found = compared(run(PARENT), run(OTHER))
    assert found.identical
    assert found.common_event is None
    assert (found.first_difference, found.knobs, found.best_apart_percent) == (None, (), 0.0)
    assert (found.in_both, found.only_in_a, found.only_in_b) == (COUNT, 0, 0)


def test_another_question_is_not_identical_whatever_was_found():
    setting = Setting(path="search.mode", a="full", b="dry")
    assert not compared(run(PARENT), run(OTHER), setting).identical


CHANGES: list[tuple[str, dict[str, Any]]] = [
    ("score", {"tokens_per_s_per_gpu": 1.5}),
    ("score", {"memory_per_gpu_gb": 1.5}),
    ("verdict", {"fits": False}),
    ("verdict", {"legal": False, "reason": "no", "reason_code": "no"}),
]


@given(
    st.sampled_from([n for n in range(COUNT) if n % 3 != 2]),
    st.sampled_from(CHANGES),
    st.booleans(),
)
def test_the_first_trial_that_differs_is_named_with_both_values(number, change, swapped):
    what, values = change
    plain, other = run(PARENT), run(OTHER, {number: scored(number, **values)})
    found = compared(other, plain) if swapped else compared(plain, other)
    first = found.first_difference
    assert not found.identical
    assert first is not None
    assert (first.trial, first.differs) == (number, what)
    assert first.a is not None
    assert first.b is not None
    assert first.a != first.b


def test_a_rejection_differs_from_a_score():
    first = compared(run(PARENT), run(OTHER, {0: rejected(0)})).first_difference
    assert first is not None
    assert first.a is not None
    assert first.b is not None
    assert (first.a.verdict, first.b.verdict) == ("fits", "over_memory_cap")


def test_a_run_that_went_further_has_trials_of_its_own():
    found = compared(run(PARENT), run(OTHER, count=COUNT + 2))
    assert (found.in_both, found.only_in_a, found.only_in_b) == (COUNT, 0, 2)
    assert found.first_difference is not None
    assert (found.first_difference.trial, found.first_difference.differs) == (COUNT, "only in b")
    assert (found.rounds[0].a and found.rounds[0].a.scored) == 4


def test_best_trials_are_compared_knob_by_knob():
    found = compared(run(PARENT), run(OTHER, {4: rejected(4)}))
    assert found.a.best is not None
    assert found.b.best is not None
    assert (found.a.best.trial, found.b.best.trial) == (4, 3)
    (gbs,) = found.knobs
    assert (gbs.knob, gbs.a, gbs.b) == ("gbs", 640, 512)
    assert gbs.apart_percent == pytest.approx(-20.0)
    assert found.best_apart_percent == pytest.approx(100 * (3003 / 3004 - 1))


def test_runs_of_one_lineage_part_after_their_last_common_event(tmp_path: Path):
    parent_run(tmp_path)
    child_run(tmp_path)
    other_run(tmp_path)
    parent, child, other = (
        list(EventLog.open(tmp_path, name).iterate()) for name in (PARENT, CHILD, OTHER)
    )
    found = compared(parent, child)
    last = parent[-1].envelope
    assert found.common_event is not None
    assert (found.common_event.run_id, found.common_event.seq) == (PARENT, last.seq)
    assert found.common_hash == last.hash
    assert found.a.forks == ()
    assert [fork.changed for fork in found.b.forks] == [
        ("cluster.memory_safety_margin: 0.1 → 0.05",)
    ]
    assert compared(child, other).common_event is None
    same = compared(child, child)
    assert same.identical
    assert same.common_hash == child[-1].envelope.hash
