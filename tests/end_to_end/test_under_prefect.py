"""The same search as a Prefect flow: same trials, nothing left running, nothing told in full."""

import signal
import sqlite3
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from storage import EventLog, State, list_runs
from tests.end_to_end.files import write_inputs
from tests.end_to_end.made_once import Standing, Uninterrupted
from tests.flows.command import command_line, environment, refold

pytestmark = pytest.mark.prefect

STAGES = ["resolve", "derive_axes", "seed_batch", "memory_filter", "score", "finish", "export"]
RUNS = Counter({**dict.fromkeys(STAGES, 1), "memory_filter": 2})
"""Filtered once more for the seed that makes up for one settled unasked; it does not fit."""


def tune_arguments(folder: Path, *more: object) -> tuple[object, ...]:
    workload, cluster = write_inputs(folder)
    files = ("--workload", workload, "--target-cluster", cluster)
    return ("tune", *files, "--seed-only", "--gemm-backend", "tile", "--seed-budget", 24, *more)


def rows(home: str | Path, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(f"file:{home}/prefect.db?mode=ro", uri=True)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def only_state(folder: Path) -> State:
    (run,) = list_runs(folder / ".refold")
    return EventLog.open(folder / ".refold", run.run_id).state()


def test_under_a_configured_api_each_stage_is_a_task_and_the_trials_are_the_same(
    standing: Standing, uninterrupted: Uninterrupted, tmp_path: Path
):
    done = refold(*tune_arguments(tmp_path), cwd=tmp_path, env=standing.environment)
    assert done.returncode == 0, done.stderr
    assert "Prefect: running under http://127.0.0.1" in done.stderr
    home = standing.home
    newest = "(select id from flow_run order by created desc limit 1)"
    tasks = rows(
        home,
        f"select name, state_type from task_run where flow_run_id = {newest}"
        " order by expected_start_time",
    )
    names = [name.rpartition("-")[0] for name, _ in tasks]
    assert [*dict.fromkeys(names)] == STAGES
    assert Counter(names) == RUNS
    assert {state for _, state in tasks} == {"COMPLETED"}
    assert rows(home, f"select state_type from flow_run where id = {newest}") == [("COMPLETED",)]
    ours, theirs = only_state(tmp_path), uninterrupted.state
    assert {n: (t.proposed, t.rejected) for n, t in ours.trials.items()} == {
        n: (t.proposed, t.rejected) for n, t in theirs.trials.items()
    }
    assert [t.evaluation for t in ours.ranked()] == [t.evaluation for t in theirs.ranked()]
    assert not (home / "storage").exists()


def test_a_new_store_has_room_for_prefects_state_under_a_standing_api(
    standing: Standing, tmp_path: Path
):
    """As where `refold server` serves another store: nothing made this one's folders."""
    env = {key: value for key, value in standing.environment.items() if key != "PREFECT_HOME"}
    done = refold(*tune_arguments(tmp_path), cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert "Prefect: running under http://127.0.0.1" in done.stderr
    assert (tmp_path / ".refold" / "prefect").is_dir()


def test_prefect_learns_of_a_failure_and_not_what_was_in_the_file(
    standing: Standing, tmp_path: Path
):
    arguments = tune_arguments(tmp_path)
    (tmp_path / "workload.yaml").write_text("modules: {pre_trainer: {model: planted-in-the-file}}")
    done = refold(*arguments, cwd=tmp_path, env=standing.environment)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(("refold: ", "  "))
    assert "Traceback" not in done.stderr
    home = standing.home
    states = rows(home, "select state_type, state_name from flow_run order by created desc")
    assert states[0][0] == "FAILED"
    for path in home.rglob("*"):
        assert not path.is_file() or b"planted-in-the-file" not in path.read_bytes(), path


def test_prefect_retries_no_search_whatever_its_settings_say(standing: Standing, tmp_path: Path):
    arguments = tune_arguments(tmp_path)
    (tmp_path / "workload.yaml").unlink()
    retrying = {"PREFECT_FLOWS_DEFAULT_RETRIES": "2", "PREFECT_TASKS_DEFAULT_RETRIES": "2"}
    done = refold(*arguments, cwd=tmp_path, env=standing.environment | retrying)
    assert done.returncode == 2
    newest = "(select id from flow_run order by created desc limit 1)"
    assert rows(standing.home, f"select run_count from flow_run where id = {newest}") == [(1,)]
    tasks = f"select name, run_count from task_run where flow_run_id = {newest}"
    ((name, count),) = rows(standing.home, tasks)
    assert name.startswith("resolve-")
    assert count == 1


def descendants_of(marker: str) -> list[str]:
    """Command lines of live processes whose environment has the marker."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if marker.encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text())
        except OSError:  # not a process, gone, or another user's
            continue
    return found


def wait_until_none(marker: str, within_s: float) -> list[str]:
    until = time.monotonic() + within_s
    while (alive := descendants_of(marker)) and time.monotonic() < until:
        time.sleep(0.1)
    return alive


def test_with_a_temporary_server_nothing_is_left_running_nor_written_elsewhere(
    standing: Standing, tmp_path: Path
):
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    standing.migrate(work / ".refold" / "prefect")
    (work / "flows.py").write_text("raise SystemExit('the user has modules of this name')")
    marker = f"REFOLD_TEST_MARK={tmp_path}"
    name, _, value = marker.partition("=")
    env = environment(HOME=str(home), TMPDIR=str(temporary), **{name: value})
    done = refold(*tune_arguments(work, "--prefect", "--out-dir", "out"), cwd=work, env=env)
    assert done.returncode == 0, done.stderr
    assert "starting a temporary server" in done.stderr
    assert descendants_of(marker) == []
    assert {path.name for path in work.iterdir()} == {
        ".refold", "out", "workload.yaml", "cluster.yaml", "flows.py",
    }  # fmt: skip
    assert list(home.iterdir()) == []
    assert list(temporary.iterdir()) == []
    database = work / ".refold" / "prefect"
    assert rows(database, "select count(*) from task_run where state_type = 'COMPLETED'") == [
        (RUNS.total(),)
    ]


def test_a_killed_search_takes_its_temporary_server_with_it(standing: Standing, tmp_path: Path):
    standing.migrate(tmp_path / ".refold" / "prefect")
    marker = f"REFOLD_TEST_MARK={tmp_path}"
    name, _, value = marker.partition("=")
    process = subprocess.Popen(
        command_line(*tune_arguments(tmp_path, "--prefect")),
        cwd=tmp_path,
        env=environment(**{name: value}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("round"):
                break
        assert len(descendants_of(marker)) == 2
        process.send_signal(signal.SIGKILL)
    assert wait_until_none(marker, within_s=20) == []
