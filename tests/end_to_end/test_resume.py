"""A run that died anywhere ends, once resumed, where an uninterrupted one ends."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flows.interrupts import Interrupted
from flows.requests import ResumeRequest, TuneRequest
from flows.tune import resume, tune
from schemas.errors import LogError, SpecChanged, UserError
from schemas.events import RunFinished, RunInterrupted, RunResumed, TrialScored
from storage import EventLog, Store
from storage.backends.lease import Owner
from storage.layout import blobs_prefix, lease_key
from tests.end_to_end.cutting import but_export, cut, decided
from tests.end_to_end.files import write_inputs
from tests.end_to_end.made_once import Uninterrupted


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
        ({"overrides": {"seq_length": 4096}}, "workload.seq_length: 8192 → 4096"),
        ({"overrides": {"micro_batch_size": 1}}, "workload.baseline.mbs: 2 → 1"),
        (
            {"overrides": {"log_interval": 7}},
            "workload.modules.pre_trainer.overrides.log_interval: None → 7",
        ),
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


def test_another_path_a_comment_and_another_experiment_name_are_the_same_job(
    uninterrupted: Uninterrupted, tmp_path: Path
):
    store = tmp_path / "store"
    cut(uninterrupted, 20, store)
    workload, cluster = write_inputs(tmp_path)
    text = workload.read_text().replace("mixtral-pretrain", "second-attempt")
    workload.write_text("# tried again\n" + text)
    update = {
        "store": str(store),
        "resume": True,
        "workload": workload,
        "target_cluster": cluster,
        "out_dir": tmp_path / "out",
    }
    run_id = tune(uninterrupted.request.model_copy(update=update))
    assert run_id == uninterrupted.run_id
    # What is exported is the run's own, as refold export would write it again.
    assert "mixtral-pretrain" in (tmp_path / "out" / "recipe" / "workload.yaml").read_text()


def test_a_damaged_run_keeps_no_other_from_being_resumed(
    uninterrupted: Uninterrupted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    cut(uninterrupted, 20, tmp_path)
    later = uninterrupted.run_id.replace(uninterrupted.run_id[:4], "2999", 1)
    cut(replace(uninterrupted, run_id=later), 20, tmp_path, blobs_of=uninterrupted.run_id)
    for blob in (tmp_path / blobs_prefix(later)).iterdir():
        blob.write_bytes(b"not what was stored")
    update = {"store": str(tmp_path), "resume": True}
    request = uninterrupted.request.model_copy(update=update)
    assert tune(request, stage=but_export) == uninterrupted.run_id
    assert f"warning: --resume passes over run {later}: " in capsys.readouterr().err


def test_when_no_unfinished_run_can_be_read_it_says_so(
    uninterrupted: Uninterrupted, tmp_path: Path
):
    cut(uninterrupted, 20, tmp_path)
    for blob in (tmp_path / blobs_prefix(uninterrupted.run_id)).iterdir():
        blob.write_bytes(b"not what was stored")
    update = {"store": str(tmp_path), "resume": True}
    with pytest.raises(UserError, match="can be read"):
        tune(uninterrupted.request.model_copy(update=update))


def test_who_held_the_run_before_is_said(
    uninterrupted: Uninterrupted, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    cut(uninterrupted, 20, tmp_path)
    gone = Owner(pid=4711, process_started="0", host="node1", since=uninterrupted.state.started_at)
    record = tmp_path / f"{lease_key(uninterrupted.run_id)}.json"
    record.write_text(gone.model_dump_json())
    resume(ResumeRequest(run=uninterrupted.run_id, store=str(tmp_path)), stage=but_export)
    assert "was held by process 4711 on host node1" in capsys.readouterr().err


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


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError()])
def test_nothing_interrupts_a_run_that_has_finished(
    uninterrupted: Uninterrupted, tmp_path: Path, error: BaseException
):
    last = len(uninterrupted.records)
    with pytest.raises(type(error)) as stopped:
        tune(request_in(tmp_path, uninterrupted), listeners=[interrupting(last, error)])
    assert not isinstance(stopped.value, Interrupted)
    (run_id,) = Store.at(tmp_path).run_ids()
    assert EventLog.open(tmp_path, run_id).state().finished == uninterrupted.state.finished


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
