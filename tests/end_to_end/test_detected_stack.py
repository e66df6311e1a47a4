"""A search on the benchmark host: what was detected is recorded, and never detected again."""

from pathlib import Path

import pytest

from flows.forking import fork
from flows.replaying import verify_replay
from flows.requests import ForkRequest, ResumeRequest, TuneRequest
from flows.tune import resume, tune
from schemas.errors import SpecChanged, UserError
from schemas.events import RunForked
from storage import EventLog, Store
from tests.end_to_end.cutting import but_export, cut
from tests.end_to_end.files import write_inputs
from tests.end_to_end.made_once import Uninterrupted
from tests.end_to_end.searches import request_in, searched
from tests.tasks.resolve.hosts import installed, rocm_tree, written


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This machine's ROCm 6.4.1, and torch."""
    monkeypatch.setenv("ROCM_PATH", str(rocm_tree(tmp_path / "rocm")))
    monkeypatch.syspath_prepend(str(installed(tmp_path / "site", "torch", "2.9.0+rocm6.4")))
    return tmp_path / "rocm"


def request_on_host(folder: Path) -> TuneRequest:
    request = request_in(folder, mode="dry", seed_budget=3)
    write_inputs(folder, available_for_benchmark={"has_gpu": True})
    return request


@pytest.fixture
def run(host: Path, tmp_path: Path) -> Uninterrupted:
    found = searched(request_on_host(tmp_path / "job"))
    written(host / ".info/version", "7.0.0-38\n")  # from now on the host is another
    return found


def test_what_was_detected_is_recorded_with_where(run: Uninterrupted, host: Path) -> None:
    parts = run.state.spec.signature_parts
    assert parts["stack"]["rocm"] == "6.4.1-83"
    assert parts["stack"]["torch"] == "2.9.0+rocm6.4"
    assert parts["origin"]["rocm"] == f"detected ({host}/.info/version)"
    assert parts["origin"]["torch"] == "detected (package metadata of torch)"


def test_a_run_is_resumed_and_replayed_under_what_was_recorded(
    run: Uninterrupted, tmp_path: Path
) -> None:
    assert verify_replay(Store.at(run.store), run.run_id).identical
    cut(run, len(run.records) - 3, tmp_path / "cut")
    resume(ResumeRequest(run=run.run_id, store=str(tmp_path / "cut")), stage=but_export)
    store = Store.at(tmp_path / "cut")
    state = EventLog.open(store, run.run_id).state()
    assert state.finished is not None
    assert {t.scored.evaluation.signature for t in state.trials.values() if t.scored} == {
        run.state.spec.signature
    }
    assert verify_replay(store, run.run_id).identical


def test_the_files_are_another_job_once_the_host_has_changed(
    run: Uninterrupted, tmp_path: Path
) -> None:
    cut(run, len(run.records) - 3, tmp_path / "cut")
    again = run.request.model_copy(update={"resume": True, "store": str(tmp_path / "cut")})
    with pytest.raises(SpecChanged, match=r"cluster\.stack\.rocm: 6\.4\.1-83 → 7\.0\.0-38"):
        tune(again, stage=but_export)


def test_a_fork_takes_the_recorded_stack_unless_it_is_set_or_read_anew(
    run: Uninterrupted, host: Path
) -> None:
    store = Store.at(run.store)

    def forked(**changes: object) -> RunForked:
        request = {"run": run.run_id, "store": str(run.store), "at_round": 0} | changes
        made = fork(ForkRequest.model_validate(request), stage=but_export)
        assert verify_replay(store, made).identical
        own = [r.event for r in EventLog.open(store, made).iterate()]
        return next(event for event in own if isinstance(event, RunForked))

    same = forked()
    assert same.spec.signature_parts == run.state.spec.signature_parts
    assert same.inherits
    raised = forked(settings=("cluster.stack.rocm=7.2.0",))
    assert raised.spec.signature_parts["stack"]["rocm"] == "7.2.0"
    assert raised.spec.signature_parts["origin"]["rocm"] == "declared (--set)"
    assert raised.spec.signature_parts["origin"]["torch"] == "detected (package metadata of torch)"
    assert raised.changed == ("cluster.stack.rocm: 6.4.1-83 → 7.2.0",)
    assert not raised.inherits
    anew = forked(target_cluster=run.request.target_cluster)
    assert anew.spec.signature_parts["stack"]["rocm"] == "7.0.0-38"
    assert "cluster.stack.rocm: 6.4.1-83 → 7.0.0-38" in anew.changed
    with pytest.raises(UserError, match="when a cluster file is read"):
        forked(settings=("cluster.stack.rocm=detect",))
