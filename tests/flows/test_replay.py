"""Replay: what a run knew at some event, and every decision made again."""

import json
from pathlib import Path
from typing import Any

import pytest

from flows.forking import fork
from flows.replaying import verify_replay
from flows.requests import ForkRequest, ResumeRequest
from flows.tune import resume, tune
from schemas.events import (
    Event,
    NoteTaken,
    RoundFinished,
    RunFinished,
    TrialRejected,
    TrialScored,
)
from storage import Entry, EventLog, Store
from tests.end_to_end.cutting import but_export, cut
from tests.end_to_end.made_once import Uninterrupted
from tests.end_to_end.searches import request_in, searched
from tests.flows.inline import refold_inline

pytestmark = pytest.mark.whole

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Uninterrupted:
    return searched(request_in(tmp_path_factory.mktemp("replay")))


def test_every_decision_of_a_run_is_made_again_the_same(whole: Uninterrupted):
    report = verify_replay(Store.at(whole.store), whole.run_id)
    assert report.identical
    assert report.finished
    assert report.reproduced == len(whole.records) == report.events
    assert report.by_type["TrialScored"] == whole.state.spent.perf_calls > 0


@pytest.mark.parametrize("mode", ["dry", "memory-real"])
@pytest.mark.parametrize("budget", [{"max_perf_calls": 2}, {"max_wall_clock_s": 0}, {}])
def test_budgets_and_modes_are_replayed(tmp_path: Path, mode: str, budget: dict[str, Any]):
    run = searched(request_in(tmp_path, budget=budget, mode=mode))
    report = verify_replay(Store.at(run.store), run.run_id)
    assert report.identical, report.different


def test_answers_from_the_cache_in_another_order_are_the_same_decisions(whole: Uninterrupted):
    again = tune(whole.request, stage=but_export)
    store = Store.at(whole.store)
    cached = [r.event for r in EventLog.open(store, again).iterate()]
    assert any(isinstance(event, TrialScored) and event.from_cache for event in cached)
    assert verify_replay(store, again).identical


def test_a_run_that_was_cut_and_resumed_is_replayed(whole: Uninterrupted, tmp_path: Path):
    for events in range(2, len(whole.records), 9):
        store = tmp_path / str(events)
        cut(whole, events, store)
        partial = verify_replay(Store.at(store), whole.run_id)
        assert (partial.identical, partial.finished, partial.reproduced) == (True, False, events)
        resume(ResumeRequest(run=whole.run_id, store=str(store)), stage=but_export)
        report = verify_replay(Store.at(store), whole.run_id)
        assert report.identical, report.different
        assert report.finished
        assert report.recorded_inputs == 1  # RunResumed


@pytest.mark.parametrize(
    "settings",
    [("search.budget.seed_budget=16",), ("cluster.memory_safety_margin=0.02",)],
    ids=["inherits", "asks again"],
)
def test_a_fork_is_replayed_under_both_specs(whole: Uninterrupted, settings: tuple[str, ...]):
    request = ForkRequest(
        run=whole.run_id, store=str(whole.store), at_round=1, settings=settings,
        out_dir=whole.store / settings[0],
    )  # fmt: skip
    child = fork(request, stage=but_export)
    report = verify_replay(Store.at(whole.store), child)
    assert report.identical, report.different
    assert report.by_type["RunForked"] == 1


def rewritten(whole: Uninterrupted, root: Path, change: Any) -> Store:
    """The run with some events changed, under a chain that is right: only a replay can tell."""
    cut(whole, 1, root)
    entries = []
    for envelope, event in whole.records[1:]:
        entries.append(Entry(change(event), envelope.round, envelope.trial))
    with EventLog.open(root, whole.run_id, writing=True) as log:
        log.append(entries, log.next_seq)
    return Store.at(root)


def slower(event: Event) -> Event:
    if isinstance(event, TrialScored) and event.evaluation.fits:
        evaluation = event.evaluation.model_copy(update={"iteration_ms": 1.0})
        return event.model_copy(update={"evaluation": evaluation})
    return event


def test_a_score_that_was_not_the_oracles_is_named(whole: Uninterrupted, tmp_path: Path):
    different = verify_replay(rewritten(whole, tmp_path, slower), whole.run_id).different
    assert different is not None
    first = next(r for r in whole.records if slower(r.event) != r.event)
    assert (different.seq, different.type) == (first.envelope.seq, "TrialScored")
    assert (different.path, different.recorded) == ("evaluation.iteration_ms", 1.0)
    assert isinstance(first.event, TrialScored)
    assert different.now == first.event.evaluation.iteration_ms
    assert different.recorded_under == different.now_under


@pytest.mark.parametrize(
    ("kind", "changes", "path"),
    [
        (TrialRejected, {"reason": "because"}, "reason"),
        (RoundFinished, {"why": "bored"}, "why"),
        (RunFinished, {"recipe_trial": 0}, "recipe_trial"),
    ],
)
def test_any_other_decision_that_differs_is_named(
    whole: Uninterrupted, tmp_path: Path, kind: type, changes: dict[str, Any], path: str
):
    def change(event: Event) -> Event:
        return event.model_copy(update=changes) if isinstance(event, kind) else event

    different = verify_replay(rewritten(whole, tmp_path, change), whole.run_id).different
    assert different is not None
    assert (different.type, different.path) == (kind.__name__, path)
    assert different.recorded == changes[path]


def test_a_decision_no_step_makes_now_is_named(whole: Uninterrupted, tmp_path: Path):
    end = len(whole.records) - 1
    cut(whole, end, tmp_path)
    with EventLog.open(tmp_path, whole.run_id, writing=True) as log:
        log.append([Entry(NoteTaken(text="I made this up", author="nobody"))], log.next_seq)
    different = verify_replay(Store.at(tmp_path), whole.run_id).different
    assert different is not None
    assert (different.seq, different.path) == (end, "type")
    assert (different.recorded, different.now) == ("NoteTaken", "RunFinished")


def test_versions_are_named_when_the_oracle_is_another_one(
    whole: Uninterrupted, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("flows.replaying.PROJECTION_VERSION", "99")
    different = verify_replay(Store.at(whole.store), whole.run_id).different
    assert different is not None
    assert (different.seq, different.path) == (0, "projection_version")
    assert different.now_under.projection == "99" != different.recorded_under.projection


def shown(capsys: Capture, run: Uninterrupted, *place: str) -> dict[str, Any]:
    store = str(run.store)
    done = refold_inline(capsys, "replay", run.run_id, *place, "--json", "--store", store)
    known: dict[str, Any] = json.loads(done.out)
    return known


def test_the_state_at_an_event_is_the_fold_up_to_it(whole: Uninterrupted, capsys: Capture):
    for event in (0, 3, len(whole.records) // 2, len(whole.records) - 1):
        known = shown(capsys, whole, "--at-event", str(event))
        assert known["as_of_event"] == event
        assert known["head_hash"] == whole.records[event].envelope.hash
    assert known["best"]["trial"] == whole.state.incumbent
    assert known["spent"]["perf_calls"] == whole.state.spent.perf_calls
    assert len(known["scratchpad"]) == len(whole.state.notes)
    before = shown(capsys, whole, "--at-round", "0")
    assert (before["best"], before["rounds"]) == (None, [])


def test_the_command_says_identical_with_counts(whole: Uninterrupted, capsys: Capture):
    done = refold_inline(capsys, "replay", whole.run_id, "--verify", "--store", str(whole.store))
    assert done.code == 0
    assert f"IDENTICAL: run {whole.run_id}: {len(whole.records)} decisions made again" in done.out


def test_the_command_names_the_difference_and_exits_1(
    whole: Uninterrupted, capsys: Capture, tmp_path: Path
):
    rewritten(whole, tmp_path / "s", slower)
    done = refold_inline(capsys, "replay", whole.run_id, "--verify", "--store", str(tmp_path / "s"))
    assert done.code == 1
    assert "DIFFERENT at event" in done.out
    assert "evaluation.iteration_ms" in done.out
