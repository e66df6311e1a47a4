"""P13: a correction is a new event; what it corrects stays and can no longer win."""

import json
from pathlib import Path

import pytest

from flows.invalidating import AUTHOR, invalidate
from schemas.errors import LogError, RunLocked, UserError
from storage import Entry, EventLog, Store, list_runs, verify, write_exports
from storage.evaluation_cache import identity_of
from storage.exports.printed import printed_result
from tests.flows.inline import refold_inline
from tests.storage.builders import trial_number, write
from tests.storage.forked_runs import CHILD, PARENT, call, forked, parent_run
from tests.storage.workloads import workload


@pytest.fixture
def store(tmp_path: Path) -> Store:
    parent_run(tmp_path / "store")
    return Store.at(tmp_path / "store")


def test_the_trial_stays_on_record_and_can_no_longer_win(store: Store):
    before = EventLog.open(store, PARENT).state()
    after = invalidate(store, PARENT, 3, "a wrong  driver")
    assert (before.incumbent, after.incumbent) == (3, 2)
    assert after.trials[3].scored == before.trials[3].scored
    event = after.trials[3].invalidated
    assert event is not None
    assert (event.why, event.author, event.incumbent) == ("a wrong driver", AUTHOR, 2)
    assert verify(store, PARENT).ok
    (listed,) = list_runs(store)
    assert (listed.best_trial, listed.best_tokens_per_s_per_gpu) == (2, 3002.0)


def test_the_head_is_anchored_and_the_finished_run_is_one_segment(store: Store):
    after = invalidate(store, PARENT, 3, "wrong")
    report = verify(store, PARENT)
    assert (report.segments, report.anchored_seq, report.warnings) == (1, after.head_seq, ())


def test_an_open_run_is_anchored_and_left_in_its_segments(store: Store):
    with forked(store.root, CHILD, PARENT, 18, inherits=True) as log:
        write(log, [[Entry(call(log, 1), 1)]])
    invalidate(store, CHILD, 3, "wrong")
    report = verify(store, CHILD)
    assert report.problem is None
    assert report.segments == 3
    assert report.anchored_seq == EventLog.open(store, CHILD).state().head_seq
    assert EventLog.open(store, PARENT).state().incumbent == 3


def test_no_later_run_is_answered_with_it(store: Store):
    state = EventLog.open(store, PARENT).state()
    wrong, right = (state.trials[number].evaluation for number in (3, 2))
    assert wrong is not None
    assert right is not None
    for evaluation in (wrong, right):
        store.evaluations.put(evaluation)
    invalidate(store, PARENT, 3, "wrong")
    assert store.evaluations.find(identity_of(wrong)).evaluation is None
    assert store.evaluations.find(identity_of(right)).evaluation == right


@pytest.mark.parametrize(
    ("trial", "why", "says"),
    [
        (9, "wrong", "has no trial 9"),
        (1, "wrong", "has no score to invalidate: it is rejected, over_memory_cap"),
        (3, " \n", "--why is empty"),
        (3, "\udcff", "is not text"),
    ],
)
def test_what_cannot_be_invalidated_is_refused(trial: int, why: str, says: str, store: Store):
    before = EventLog.open(store, PARENT).state()
    with pytest.raises(UserError, match=says):
        invalidate(store, PARENT, trial, why)
    assert EventLog.open(store, PARENT).state() == before


def test_twice_is_refused(store: Store):
    invalidate(store, PARENT, 3, "wrong")
    with pytest.raises(UserError, match="is invalidated already: wrong"):
        invalidate(store, PARENT, 3, "wrong")


def test_a_run_that_is_being_written_is_refused(store: Store):
    with EventLog.open(store, PARENT, writing=True), pytest.raises(RunLocked):
        invalidate(store, PARENT, 3, "wrong")


def test_a_secret_in_the_reason_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOME_API_KEY", "a-very-secret-value")
    with pytest.raises(LogError):
        invalidate(store, PARENT, 3, "the key was a-very-secret-value")
    assert EventLog.open(store, PARENT).state().incumbent == 3


def test_exports_carry_it(store: Store, tmp_path: Path):
    invalidate(store, PARENT, 3, "a wrong driver")
    state = invalidate(store, PARENT, 2, "another")
    write_exports(state, workload(), tmp_path / "out")
    lines = (tmp_path / "out" / "trials.jsonl").read_text().splitlines()
    marked = {line["idx"]: line["invalidated"] for line in map(json.loads, lines)}
    assert marked == {
        0: None,
        1: None,
        2: {"why": "another", "author": AUTHOR},
        3: {"why": "a wrong driver", "author": AUTHOR},
    }
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["best"]["trial"] == 0
    assert [entry["trial"] for entry in summary["invalidated"]] == [2, 3]
    assert summary["invalidated"][1]["trial_id"] == trial_number(3).trial_id
    (overlay,) = (tmp_path / "out" / "trials").glob("003_*.yaml")
    assert "INVALIDATED: a wrong driver" in overlay.read_text()
    assert "passes over trial #3, which was invalidated" in printed_result(state, workload())


def test_when_nothing_is_left_it_says_so(store: Store, tmp_path: Path):
    for number in (0, 2, 3):
        state = invalidate(store, PARENT, number, "wrong")
    shown = printed_result(state, workload())
    assert "NO LEGAL CONFIGURATION" in shown
    assert "3 scored (3 of them invalidated), none left" in shown
    write_exports(state, workload(), tmp_path / "out")
    assert not (tmp_path / "out" / "recipe").exists()


def test_the_verb_says_what_is_best_now(store: Store, capsys: pytest.CaptureFixture[str]):
    place = ("--store", store.root)
    done = refold_inline(capsys, "invalidate", PARENT, 3, "--why", "wrong", *place)
    assert (done.code, done.err) == (0, "")
    assert "best is trial 2 (gbs384): 3,002 tokens/s/GPU" in done.out
    done = refold_inline(capsys, "invalidate", PARENT, 2, "--why", "wrong", "--json", *place)
    assert json.loads(done.out)["best_trial"] == 0
    done = refold_inline(capsys, "invalidate", PARENT, 2, "--why", "wrong", *place)
    assert (done.code, done.out) == (2, "")
    done = refold_inline(capsys, "show", PARENT, *place)
    assert done.out.count("invalidated") == 4
