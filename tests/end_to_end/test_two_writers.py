"""Two processes that take up one run at one moment. `benchmarks.races` does it a hundred times."""

import os
import re
import socket
from pathlib import Path

import pytest

from schemas.events import RunResumed
from storage import EventLog
from storage.backends.lease import Owner
from storage.layout import lease_key
from tests.end_to_end.cutting import cut, decided
from tests.end_to_end.made_once import Uninterrupted
from tests.end_to_end.processes import exit_code, refold, start

RACES = 10
HOLDER = re.compile(
    r"^refold: run (\S+) is held by process (\d+) on host (\S+)"
    r" since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$",
    re.M,
)


@pytest.mark.slow
def test_of_two_processes_that_resume_a_run_one_does_and_the_other_says_who(
    uninterrupted: Uninterrupted, tmp_path: Path
):
    for race in range(RACES):
        store = tmp_path / str(race) / "store"
        cut(uninterrupted, 8, store)
        arguments = ("resume", "latest", "--store", store, "--out-dir", tmp_path / "out")
        processes = {}
        for name in ("one", "other"):
            folder = tmp_path / str(race) / name
            folder.mkdir()
            processes[folder] = start(refold, (*arguments, "--no-prefect"), folder)
        codes = {exit_code(process): folder for folder, process in processes.items()}
        assert set(codes) == {0, 4}, [(f / "said").read_text() for f in processes]
        (holder,) = HOLDER.findall((codes[4] / "said").read_text())
        winner = processes[codes[0]]
        assert holder == (uninterrupted.run_id, str(winner.pid), socket.gethostname())
        log = EventLog.open(store, uninterrupted.run_id)
        assert sum(isinstance(r.event, RunResumed) for r in log.iterate()) == 1
        assert decided(log.state()) == decided(uninterrupted.state)


@pytest.mark.parametrize("reused", [False, True])
def test_the_lease_of_a_dead_process_is_taken_over_also_when_its_number_is_in_use(
    uninterrupted: Uninterrupted, tmp_path: Path, reused: bool
):
    store = tmp_path / "store"
    cut(uninterrupted, len(uninterrupted.records) - 1, store)
    dead = start(os._exit, 0)
    assert exit_code(dead) == 0
    assert dead.pid is not None
    owner = Owner(
        pid=os.getpid() if reused else dead.pid,
        process_started="of another boot 1",
        host=socket.gethostname(),
        since=uninterrupted.state.started_at,
    )
    (store / f"{lease_key(uninterrupted.run_id)}.json").write_text(owner.model_dump_json())
    arguments = ("resume", "latest", "--store", store, "--out-dir", tmp_path / "out")
    assert exit_code(start(refold, (*arguments, "--no-prefect"), tmp_path)) == 0
    said = (tmp_path / "said").read_text()
    assert f"was held by process {owner.pid} on host {owner.host} since " in said
    assert ", which is gone" in said
