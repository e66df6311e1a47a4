"""A night as a Prefect flow: one flow run, its report and its regressions where people look."""

from pathlib import Path
from typing import Any

import pytest

from storage.nights import read_night
from tests.end_to_end.made_once import Standing
from tests.end_to_end.nights import AFTER, BEFORE, store_in, write_target, write_targets
from tests.end_to_end.prefect_server import eventually
from tests.flows.command import refold
from tests.flows.test_publishing import ask

pytestmark = pytest.mark.prefect

ARGUMENTS = ("nightly", "targets.yaml", "--store", "store", "--out-dir", "out", "--prefect")


def fire(folder: Path, standing: Standing, slot: str) -> int:
    done = refold(*ARGUMENTS, "--slot", slot, cwd=folder, env=standing.environment)
    assert "Traceback" not in done.stderr
    return done.returncode


def flow_runs(standing: Standing) -> list[dict[str, Any]]:
    flows = {"name": {"any_": ["refold-nightly"]}}
    found: list[dict[str, Any]] = ask(standing, "flow_runs/filter", flows=flows)
    return found


def test_a_regression_is_an_artifact_and_an_event_and_a_failure_too(
    standing: Standing, tmp_path: Path
):
    write_target(tmp_path / "worse", hipblaslt=BEFORE, gemm_fp8=1.0)
    write_target(tmp_path / "same", target_cluster={"name": "same"})
    names = ("worse", "same", "gone")
    write_targets(tmp_path, *names, name="lab")
    assert fire(tmp_path, standing, "2026-03-01T02:00") == 6
    write_target(tmp_path / "worse", hipblaslt=AFTER, gemm_fp8=0.5)
    before = len(flow_runs(standing))
    assert fire(tmp_path, standing, "2026-03-02T02:00") == 5
    assert len(flow_runs(standing)) == before + 1  # for all targets together

    key = {"artifacts": {"key": {"any_": ["refold-lab-night"]}}}
    (page,) = ask(standing, "artifacts/latest/filter", **key)
    assert page["data"].startswith("# REGRESSION in worse; FAILED: gone;")
    assert f"cluster.stack.hipblaslt: {BEFORE} → {AFTER}" in page["data"]

    def told(event: str, target: str) -> Any:
        wanted = {"event": {"name": [event]}, "resource": {"id": [f"refold.target.{target}"]}}
        return ask(standing, "events/filter", filter=wanted)["events"] or None

    (event,) = eventually(lambda: told("refold.night.regression", "worse"), 60, "the regression")
    assert event["payload"]["moved"][0] == "cluster.stack.hipblaslt"
    assert event["payload"]["change_percent"] < -1
    assert eventually(lambda: told("refold.night.failure", "gone"), 60, "the failure")
    assert not told("refold.night.regression", "same")
    name = store_in(tmp_path).nights.run_ids()[-1]
    assert read_night(store_in(tmp_path), name).decided["same"].outcome == "kept"


def test_prefect_learns_nothing_of_what_is_in_a_file(standing: Standing, tmp_path: Path):
    planted = "planted-in-a-target"
    write_target(tmp_path / "a")
    (tmp_path / "a" / "workload.yaml").write_text(f"modules: {{pre_trainer: {{model: {planted}}}}}")
    write_targets(tmp_path, "a", name="quiet")
    assert fire(tmp_path, standing, "2026-03-01T02:00") == 6
    assert {run["state_name"] for run in flow_runs(standing)} == {"Completed"}
    assert planted in (tmp_path / "out" / "report.md").read_text()
    for path in standing.home.rglob("*"):
        assert not path.is_file() or planted.encode() not in path.read_bytes(), path
