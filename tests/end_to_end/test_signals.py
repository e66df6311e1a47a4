"""Ctrl-C, SIGTERM and kill -9 in the middle of a real process, and what is left to resume.

The search writes a line per decision on stderr. Given a pipe that holds one page and that nobody
reads, it comes to a halt in the middle of its work, and is then sent the signal.
"""

import array
import fcntl
import os
import re
import signal
import subprocess
import termios
import time
from pathlib import Path

import pytest

from storage import EventLog, State, list_runs
from tests.end_to_end.files import write_inputs
from tests.end_to_end.made_once import Standing
from tests.flows.command import command_line, environment, refold

PIPE_BYTES = 4096
WAIT_S = 60


def full(pipe: int) -> bool:
    """Whether the next line written to the pipe has to wait."""
    waiting = array.array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, waiting)
    return waiting[0] > PIPE_BYTES - 160


def stopped_midway(
    folder: Path, number: signal.Signals, env: dict[str, str], where: str
) -> tuple[int, str]:
    """Runs a search that halts midway and is sent `number`; its exit code and stderr."""
    workload, cluster = write_inputs(folder)
    read, write = os.pipe()
    fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    arguments = ("tune", "--workload", workload, "--target-cluster", cluster, "--seed-only")
    process = subprocess.Popen(
        command_line(*arguments, "--seed-budget", 70, where, "--gemm-backend", "tile"),
        cwd=folder,
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=write,
    )
    os.close(write)
    until = time.monotonic() + WAIT_S
    while not full(read):
        assert process.poll() is None, "the search ended before its pipe was full"
        assert time.monotonic() < until
        time.sleep(0.01)
    process.send_signal(number)
    with os.fdopen(read) as stderr:
        shown = stderr.read()
    return process.wait(WAIT_S), shown


def only_state(folder: Path) -> State:
    (run,) = list_runs(folder / ".refold")
    return EventLog.open(folder / ".refold", run.run_id).state()


def undecided(state: State) -> bool:
    return bool(state.in_flight) and state.conservation.rejections > 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_search_says_how_to_go_on_and_goes_on(
    number: signal.Signals, tmp_path: Path
):
    code, shown = stopped_midway(tmp_path, number, environment(), "--no-prefect")
    assert code == 130
    goes_on_from(tmp_path, shown)


@pytest.mark.prefect
def test_an_interrupted_flow_is_marked_so_and_goes_on(standing: Standing, tmp_path: Path):
    code, shown = stopped_midway(tmp_path, signal.SIGINT, standing.environment, "--prefect")
    assert code == 130
    goes_on_from(tmp_path, shown)


def goes_on_from(tmp_path: Path, shown: str) -> None:
    """The run is interrupted, says how to resume it, and does."""
    state = only_state(tmp_path)
    assert "Traceback" not in shown
    assert state.interrupted is not None
    assert undecided(state)
    (says,) = re.findall(
        r"^interrupted by the user: refold (resume .*) goes on from here$", shown, re.M
    )
    done = refold(*says.split(), "--no-prefect", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    after = only_state(tmp_path)
    assert after.finished is not None
    assert after.in_flight == ()
    assert after.conservation.candidates == state.conservation.candidates


def test_a_killed_search_is_resumed_by_asking_for_it_again(tmp_path: Path):
    code, _ = stopped_midway(tmp_path, signal.SIGKILL, environment(), "--no-prefect")
    state = only_state(tmp_path)
    assert code == -signal.SIGKILL
    assert state.interrupted is None
    assert undecided(state)
    arguments = ("--workload", "workload.yaml", "--target-cluster", "cluster.yaml", "--resume")
    limits = ("--seed-budget", 70, "--gemm-backend", "tile", "--no-prefect", "--seed-only")
    workload, cluster = tmp_path / "workload.yaml", tmp_path / "cluster.yaml"
    done = refold(
        "tune", "--workload", workload, "--target-cluster", cluster, *limits, "--resume",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, (done.stderr, arguments)
    after = only_state(tmp_path)
    assert after.finished is not None
    decided = {n: t for n, t in state.trials.items() if t.decided_at is not None}
    assert {n: after.trials[n] for n in decided} == decided
