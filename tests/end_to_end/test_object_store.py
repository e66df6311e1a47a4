"""`refold --store s3://…` in real processes, against a real S3 server on the loopback address."""

import json
import os
import signal
import socket
from pathlib import Path

import pytest

from storage import EventLog, State, Store, list_runs
from tests.end_to_end.files import write_inputs
from tests.end_to_end.test_signals import stopped_midway
from tests.flows.command import environment, refold
from tests.flows.inline import refold_inline
from tests.s3_server import Fault, S3Server

QUICK = ("--seed-only", "--mode", "dry", "--seed-budget", "6")


def tune_arguments(folder: Path, *more: object) -> tuple[object, ...]:
    workload, cluster = write_inputs(folder)
    return ("tune", "--workload", workload, "--target-cluster", cluster, *QUICK, *more)


def only_state(name: str) -> State:
    store = Store.locate(name, os.environ)
    (run,) = list_runs(store)
    return EventLog.open(store, run.run_id).state()


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_search_and_every_verb_about_it_work_on_a_url(
    s3_store: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = tmp_path / "cache"
    env = environment(XDG_CACHE_HOME=str(cache), REFOLD_STORE=s3_store)
    done = refold(*tune_arguments(tmp_path, "--no-prefect"), cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert "artefacts are in tuning_runs/pod" in done.stdout
    state = only_state(s3_store)
    assert state.finished is not None

    def verb(*arguments: str) -> str:
        ended = refold_inline(capsys, *arguments, "--store", s3_store)
        assert ended.code == 0, ended.err
        return ended.out

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("MPLCONFIGDIR", str(cache / "matplotlib"))
    (run,) = json.loads(verb("runs", "--json"))
    assert (run["run_id"], run["status"]) == (state.run_id, "finished")
    assert len(verb("show", "latest", "--events").splitlines()) == state.head_seq + 1
    assert f"{state.head_seq + 1} events in" in verb("verify", "latest")
    verb("export", "latest", "--out-dir", "again")
    assert contents(tmp_path / "again") == contents(tmp_path / "tuning_runs" / "pod")
    verb("resume", "latest", "--no-prefect")
    assert only_state(s3_store).head_seq == state.head_seq, "a finished run is left as it is"

    made = {path.name for path in tmp_path.iterdir()}
    assert made == {"cache", "workload.yaml", "cluster.yaml", "tuning_runs", "again"}
    assert (cache / "refold" / "cache" / "matplotlib").is_dir()
    secret = os.environ["AWS_SECRET_ACCESS_KEY"].encode()
    assert all(secret not in data for data in contents(tmp_path).values())


@pytest.mark.slow
def test_a_killed_search_goes_on_from_the_url(s3_store: str, tmp_path: Path) -> None:
    env = environment(REFOLD_STORE=s3_store, XDG_CACHE_HOME=str(tmp_path / "cache"))
    code, _ = stopped_midway(tmp_path, signal.SIGKILL, env, "--no-prefect")
    assert code == -signal.SIGKILL
    before = only_state(s3_store)
    assert before.finished is None
    assert before.in_flight
    done = refold("resume", "latest", "--store", s3_store, "--no-prefect", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert f"note: run {before.run_id} was held by process" in done.stderr
    after = only_state(s3_store)
    assert after.finished is not None
    assert after.in_flight == ()
    assert after.conservation.candidates == before.conservation.candidates
    decided = {n: t for n, t in before.trials.items() if t.decided_at is not None}
    assert {n: after.trials[n] for n in decided} == decided
    assert refold("verify", "latest", cwd=tmp_path, env=env).returncode == 0


def test_prefect_is_at_home_in_the_cache(
    s3_store: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "environ", os.environ.copy())  # Prefect's settings stay in this test
    os.environ.pop("PREFECT_HOME", None)
    os.environ["PREFECT_API_URL"] = "http://127.0.0.1:9/api"
    done = refold_inline(capsys, *tune_arguments(tmp_path, "--store", s3_store))
    assert done.code == 0
    assert "does not answer; running in process" in done.err
    assert os.environ["PREFECT_HOME"] == str(tmp_path / "cache" / "refold" / "prefect")


def test_trouble_midway_is_told_and_the_run_goes_on_when_it_is_over(
    s3: S3Server,
    s3_store: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))
    s3.misbehave(Fault("PUT", ".parquet", answer=403, code="ExpiredToken", after=4, times=99))
    arguments = tune_arguments(tmp_path, "--no-prefect", "--store", s3_store)
    done = refold_inline(capsys, *arguments)
    assert done.code == 3
    assert "access is denied (HTTP 403 ExpiredToken)" in done.err
    assert "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in done.err
    assert "Traceback" not in done.err
    s3.faults.clear()
    assert refold_inline(capsys, "resume", "latest", "--store", s3_store, "--no-prefect").code == 0
    assert only_state(s3_store).finished is not None


@pytest.mark.parametrize("verb", [("runs",), ("show", "latest"), ("verify", "latest")])
def test_a_missing_bucket_is_exit_code_3(
    s3: S3Server, verb: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    done = refold_inline(capsys, *verb, "--store", "s3://nowhere/x")
    assert done.code == 3
    assert done.out == ""
    assert done.err.splitlines() == [
        "refold: s3://nowhere/x/runs: cannot be listed: there is no bucket nowhere",
        "  make it first, or name another",
    ]


def test_no_server_is_exit_code_3_before_a_search_begins(
    s3: S3Server,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        arguments = tune_arguments(tmp_path, "--no-prefect", "--store", "s3://bucket/x")
        done = refold_inline(capsys, *arguments)
    assert done.code == 3
    assert f"no connection to {url}" in done.err.splitlines()[-2]
    assert "Traceback" not in done.err
    assert list((tmp_path / "tuning_runs" / "pod").iterdir()) == []


def test_a_password_in_a_url_is_refused_and_not_shown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    done = refold_inline(capsys, "runs", "--store", "s3://user:hunter2hunter2@bucket/x")
    assert done.code == 2
    assert "hunter2" not in done.out + done.err
