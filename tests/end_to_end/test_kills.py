"""Searches killed at moments spread over their whole life. `benchmarks.kills` does it at length."""

import signal
from pathlib import Path

import pytest

from benchmarks.killed_search import search
from benchmarks.outcome import artefacts, decided, decided_twice
from flows.requests import ResumeRequest, TuneRequest
from storage import EventLog, Store, verify
from tests.end_to_end.processes import exit_code, start
from tests.end_to_end.searches import request_in

KILLS = 25


def small(folder: Path) -> TuneRequest:
    return request_in(folder, mode="dry", seed_budget=5)


def ended(
    request: TuneRequest | ResumeRequest, folder: Path, call: int | None = None
) -> tuple[int, list[str]]:
    """How a process that runs `request` ends, and the lines in which it acknowledged events."""
    said = folder / f"acknowledged-{call}"
    code = exit_code(start(search, request, said, call))
    return code, said.read_text().splitlines()


def log_in(folder: Path) -> EventLog:
    (run_id,) = Store.at(folder / "store").run_ids()
    return EventLog.open(folder / "store", run_id)


@pytest.mark.slow
def test_a_search_killed_before_any_change_of_a_file_loses_nothing(tmp_path: Path):
    whole = tmp_path / "whole"
    whole.mkdir()
    code, lines = ended(small(whole), whole)
    assert code == 0
    expected, files = decided(log_in(whole)), artefacts(whole / "out")
    changes = int(lines[-1].removeprefix("changes "))
    assert changes > 4 * KILLS
    for kill in range(KILLS):
        folder = tmp_path / str(kill)
        folder.mkdir()
        survived = killed_and_compared(folder, 1 + kill * (changes - 1) // (KILLS - 1))
        request = small(folder)
        if survived:
            again = ResumeRequest(run="latest", store=request.store, out_dir=request.out_dir)
            assert ended(again, folder)[0] == 0
        else:
            assert ended(request, folder)[0] == 0
        records = list(log_in(folder).iterate())
        assert [(r.envelope.seq, r.envelope.hash) for r in records][: len(survived)] == survived
        assert decided_twice(records) == 0
        assert decided(log_in(folder)) == expected
        assert artefacts(folder / "out") == files
        runs = (folder / "store" / "runs").glob("*/events")
        assert [left for events in runs if survived for left in events.glob(".tmp-*")] == []


def killed_and_compared(folder: Path, call: int) -> list[tuple[int, str]]:
    """Kills a search before its `call`-th change; number and hash of the events it left."""
    code, lines = ended(small(folder), folder, call)
    assert code == -signal.SIGKILL
    *acknowledged, last = lines
    assert last.startswith("killed before ")
    run_ids = Store.at(folder / "store").run_ids()
    if not run_ids:
        assert acknowledged == []
        return []
    assert verify(folder / "store", run_ids[0]).problem is None
    envelopes = [record.envelope for record in log_in(folder).iterate()]
    there = [(envelope.seq, envelope.hash) for envelope in envelopes]
    said = [(int(seq), digest) for seq, digest in map(str.split, acknowledged)]
    assert there[: len(said)] == said, last
    return there
