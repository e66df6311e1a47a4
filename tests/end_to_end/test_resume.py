"""A run that died anywhere ends, once resumed, where an uninterrupted one ends."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flows.interrupts import Interrupted
from flows.requests import ResumeRequest, TuneRequest
from flows.tune import resume, tune
from schemas.errors import LogError, SpecChanged, UserError
from schemas.events import RunFinished, RunInterrupted, RunResumed, TrialScored
from storage import Entry, EventLog, State
from storage.layout import blobs_prefix
from tests.end_to_end.files import write_inputs
from tests.end_to_end.made_once import Uninterrupted


def but_export(name: str, step: Callable[..., Any], *args: Any) -> Any:
    """Runs every stage but the last, which only draws files from the log."""
    return None if name == "export" else step(*args)


def cut(whole: Uninterrupted, events: int, store: Path) -> None:
    """The first `events` events of a run, in a store where the rest never happened."""
    blobs = blobs_prefix(whole.run_id)
    shutil.copytree(whole.store / blobs, store / blobs)
    with EventLog.create(store, whole.run_id) as log:
        kept = whole.records[:events]
        log.append([Entry(event, at.round, at.trial) for at, event in kept], expected_seq=0)


def decided(state: State) -> dict[int, Any]:
    """What became of each trial, without when or from where."""
    return {
        number: (
            trial.proposed,
            trial.rejected,
            trial.scored and trial.scored.evaluation,
        )
        for number, trial in state.trials.items()
    }


def continued(whole: Uninterrupted, events: int, store: Path) -> State:
    cut(whole, events, store)
    run_id = resume(ResumeRequest(run=whole.run_id, store=str(store)), stage=but_export)
    return EventLog.open(store, run_id).state()


def test_resumed_after_any_event_it_ends_as_if_nothing_had_happened(
    uninterrupted: Uninterrupted, tmp_path: Path
):
    total = len(uninterrupted.records)
    for events in sorted({*range(1, 7), *range(7, total, 3), *range(total - 3, total)}):
        state = continued(uninterrupted, events, tmp_path / str(events))
        assert decided(state) == decided(uninterrupted.state), f"cut after {events} events"
        assert state.finished == uninterrupted.state.finished
        assert state.incumbent == uninterrupted.state.incumbent
        assert state.spent.perf_calls == uninterrupted.state.spent.perf_calls
        # One event more than the uninterrupted run has: RunResumed.
        assert state.head_seq == uninterrupted.state.head_seq + 1


def test_what_was_decided_is_not_decided_again(uninterrupted: Uninterrupted, tmp_path: Path):
    scored = [n for n, r in enumerate(uninterrupted.records) if isinstance(r.event, TrialScored)]
    seen: list[int | None] = []
    cut(uninterrupted, scored[2], tmp_path)
    before = EventLog.open(tmp_path, uninterrupted.run_id).state()
    resume(
        ResumeRequest(run=uninterrupted.run_id, store=str(tmp_path)),
        stage=but_export,
        listeners=[lambda _, at: seen.append(at.trial)],
    )
    undecided = set(before.in_flight)
    assert undecided <= set(seen)
    assert set(seen).isdisjoint(before.trials.keys() - undecided)


def test_a_finished_run_is_left_as_it_is(uninterrupted: Uninterrupted, tmp_path: Path):
    cut(uninterrupted, len(uninterrupted.records), tmp_path)
    resume(ResumeRequest(run=uninterrupted.run_id, store=str(tmp_path)), stage=but_export)
    assert len(EventLog.open(tmp_path, uninterrupted.run_id).read()) == len(uninterrupted.records)


def test_the_newest_unfinished_run_of_the_same_spec_is_continued(
    uninterrupted: Uninterrupted, tmp_path: Path
):
    cut(uninterrupted, 20, tmp_path)
    request = uninterrupted.request.model_copy(update={"store": str(tmp_path), "resume": True})
    assert tune(request, stage=but_export) == uninterrupted.run_id
    state = EventLog.open(tmp_path, uninterrupted.run_id).state()
    assert state.finished is not None
    assert len(state.resumed) == 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"seed_budget": 30}, "search.budget.seed_budget: 24 → 30"),
        ({"mode": "dry"}, "search.mode: full → dry"),
        ({"memory_regime": "paper"}, "memory_regime: config → paper"),
    ],
)
def test_another_search_is_not_a_continuation(
    uninterrupted: Uninterrupted, tmp_path: Path, changes: dict[str, Any], says: str
):
    cut(uninterrupted, 20, tmp_path)
    update = {"store": str(tmp_path), "resume": True, **changes}
    with pytest.raises(SpecChanged) as refused:
        tune(uninterrupted.request.model_copy(update=update))
    assert says in str(refused.value)
    assert len(EventLog.open(tmp_path, uninterrupted.run_id).read()) == 20


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ({"nodes": 8}, "cluster.num_nodes: 4 → 8"),
        ({"overrides": {"seq_length": 4096}}, "workload"),
        ({"overrides": {"micro_batch_size": 1}}, "workload"),
    ],
)
def test_other_files_are_not_a_continuation(
    uninterrupted: Uninterrupted, tmp_path: Path, inputs: dict[str, Any], says: str
):
    store = tmp_path / "store"
    cut(uninterrupted, 20, store)
    workload, cluster = write_inputs(tmp_path, **inputs)
    update = {
        "store": str(store),
        "resume": True,
        "workload": workload,
        "target_cluster": cluster,
    }
    with pytest.raises(SpecChanged, match=says):
        tune(uninterrupted.request.model_copy(update=update))


def test_with_nothing_unfinished_there_is_nothing_to_resume(
    uninterrupted: Uninterrupted, tmp_path: Path
):
    cut(uninterrupted, len(uninterrupted.records), tmp_path)
    update = {"store": str(tmp_path), "resume": True}
    with pytest.raises(UserError, match="no unfinished run"):
        tune(uninterrupted.request.model_copy(update=update))


def test_without_resume_the_same_request_is_another_run(
    uninterrupted: Uninterrupted, tmp_path: Path
):
    cut(uninterrupted, 20, tmp_path)
    request = uninterrupted.request.model_copy(update={"store": str(tmp_path)})
    again = tune(request, stage=but_export)
    assert again != uninterrupted.run_id
    assert decided(EventLog.open(tmp_path, again).state()) == decided(uninterrupted.state)


def interrupting(at: int, error: BaseException) -> Any:
    """A listener that raises after `at` events, as a signal between two appends would."""
    seen = 0

    def listener(event: object, envelope: object) -> None:
        nonlocal seen
        seen += 1
        if seen == at:
            raise error

    return listener


def request_in(folder: Path, whole: Uninterrupted) -> TuneRequest:
    return whole.request.model_copy(update={"store": str(folder)})


@pytest.mark.parametrize("at", [2, 4, 18, 25])
def test_an_interrupt_is_an_event_and_the_run_goes_on_from_there(
    uninterrupted: Uninterrupted, tmp_path: Path, at: int
):
    with pytest.raises(Interrupted) as stopped:
        tune(
            request_in(tmp_path, uninterrupted),
            listeners=[interrupting(at, KeyboardInterrupt())],
        )
    state = EventLog.open(tmp_path, stopped.value.run_id).state()
    assert state.interrupted == RunInterrupted(why="interrupted by the user")
    resume(ResumeRequest(run=stopped.value.run_id, store=str(tmp_path)), stage=but_export)
    state = EventLog.open(tmp_path, stopped.value.run_id).state()
    assert decided(state) == decided(uninterrupted.state)


def test_a_bug_leaves_a_resumable_run_and_says_so_in_its_notes(
    uninterrupted: Uninterrupted, tmp_path: Path
):
    bug = ZeroDivisionError("with sk-a-secret-in-its-text")
    with pytest.raises(ZeroDivisionError) as raised:
        tune(request_in(tmp_path, uninterrupted), listeners=[interrupting(10, bug)])
    (note,) = raised.value.__notes__
    run_id = note.split()[2]
    state = EventLog.open(tmp_path, run_id).state()
    assert state.interrupted == RunInterrupted(why="stopped by ZeroDivisionError")


def test_a_log_that_fails_is_not_written_to_again(uninterrupted: Uninterrupted, tmp_path: Path):
    with pytest.raises(LogError, match="the disk is full"):
        tune(
            request_in(tmp_path, uninterrupted),
            listeners=[interrupting(10, LogError("the disk is full"))],
        )
    (run_id,) = [path.name for path in (tmp_path / "runs").iterdir()]
    kinds = {
        type(r.event) for r in EventLog.open(tmp_path, run_id.removeprefix("run_id=")).iterate()
    }
    assert not kinds & {RunInterrupted, RunFinished, RunResumed}


def test_seeds_settled_unasked_do_not_use_up_the_budget(uninterrupted: Uninterrupted):
    trials = uninterrupted.state.trials.values()
    rejections = [trial.rejected for trial in trials if trial.rejected is not None]
    implied = [rejected for rejected in rejections if rejected.inferred_from is not None]
    assert implied
    budget = uninterrupted.state.spec.search.budget.seed_budget
    assert len(trials) - len(implied) == budget
