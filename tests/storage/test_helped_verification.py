"""A long run verified by several processes: the same verdict as event by event, and the same name
for the first bad event."""

import os
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from schemas.errors import LogError
from schemas.events import RunForked
from storage import Entry, EventLog, Store, helped_verification, segments, verify
from storage.backends.local import LocalDisk
from storage.extent import Origin, survey
from storage.folding import fold_records
from storage.heads import read_anchor
from storage.helped_verification import (
    Piece,
    helpers,
    helpers_worth,
    outlined,
    pieces_of,
    share_is_sound,
)
from storage.reading import records
from storage.state import State, Trial
from tests.storage import test_tampering as tampering
from tests.storage.builders import RUN, Clock, proposed, scored, started, whole_run, write, written

pytestmark = pytest.mark.whole

CHILD = "20260305t000000-000000-bbbbbbbb"


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two helpers are worth their start from the first event on."""
    monkeypatch.setattr(helped_verification, "EVENTS_PER_HELPER", 1)
    monkeypatch.setattr(helped_verification, "available_cpus", lambda: 2)


def outlined_state(root: Path, run_id: str = RUN) -> State:
    backend = LocalDisk(root)
    return fold_records(records(backend, survey(backend, run_id), reading=outlined()))


def known_to_the_fold(state: State) -> State:
    """`state` without what trials' events hold beyond their verdicts."""
    trials = {
        n: Trial(t.number, t.round, None, t.proposed_at, None, None, t.decided_at)  # type: ignore[arg-type]
        for n, t in state.trials.items()
    }
    return replace(state, trials=trials)


def forked(root: Path) -> Path:
    """A run, and one that continues it from its 7th event: trials 0 and 1 are decided."""
    _, *rest = whole_run(4)
    with EventLog.create(root, RUN, clock=Clock()) as log:
        spec = started(workload_blob=log.put_blob(b"w"), cluster_blob=log.put_blob(b"c"))
        write(log, [[Entry(spec)], *rest])
        log.anchor_head()
    origin = EventLog.open(root, RUN).read()[6]
    with EventLog.create(
        root, CHILD, parent=Origin(RUN, origin.seq, origin.hash), clock=Clock()
    ) as log:
        spec = started(workload_blob=log.put_blob(b"w"), cluster_blob=log.put_blob(b"c"))
        event = RunForked(
            parent=RUN, parent_seq=origin.seq, parent_hash=origin.hash, asked="here",
            spec=spec, changed=(), inherits=True,
        )  # fmt: skip
        write(log, [[Entry(event)], [Entry(proposed(7), 0, 7), Entry(scored(7), 0, 7)]])
        log.anchor_head()
    return root


def test_an_outline_is_enough_for_the_fold(tmp_path: Path) -> None:
    root = forked(tmp_path)
    for run_id in (RUN, CHILD):
        whole = EventLog.open(root, run_id).state()
        outline = outlined_state(root, run_id)
        assert known_to_the_fold(outline) == known_to_the_fold(whole)
        assert [t.status for t in outline.trials.values()] == [
            t.status for t in whole.trials.values()
        ]
        assert [t.score for t in outline.trials.values()] == [
            t.score for t in whole.trials.values()
        ]


@pytest.mark.parametrize("count", [1, 2, 3, 50])
def test_the_shares_cover_every_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    root = forked(tmp_path)
    store = Store.at(root)
    seen: list[tuple[str, int]] = []
    looks = helped_verification._is_sound

    def spy(row: segments.Row) -> bool:
        seen.append((row.envelope.run_id, row.envelope.seq))
        return looks(row)

    monkeypatch.setattr(helped_verification, "_is_sound", spy)
    pieces = pieces_of(store.backend, CHILD)
    assert all(share_is_sound(store.backend, pieces, n, count) for n in range(count))
    assert sorted(seen) == [(RUN, n) for n in range(7)] + [(CHILD, n) for n in range(7, 10)]


def test_the_shares_cover_the_row_groups_of_a_long_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "ROWS_PER_GROUP", 3)
    monkeypatch.setattr(helped_verification, "ROWS_PER_GROUP", 3)
    written(tmp_path, whole_run(4))
    with EventLog.open(tmp_path, RUN, writing=True) as log:
        assert log.compact() > 1
    store = Store.at(tmp_path)
    pieces = pieces_of(store.backend, RUN)
    assert pieces == [Piece(RUN, 0, 14)]
    data = store.backend.read(f"runs/run_id={RUN}/events/000000000000.parquet")
    shares = [segments.decode(data, groups=slice(n, None, 2)) for n in range(2)]
    assert [[row.envelope.seq for row in share] for share in shares] == [
        [0, 1, 2, 6, 7, 8, 12, 13],
        [3, 4, 5, 9, 10, 11],
    ]
    assert all(share_is_sound(store.backend, pieces, n, 2) for n in range(2))
    payloads = [r.envelope.payload != "" for r in outlined().decode(data)]
    assert payloads == [True] * 3 + [False] * 6 + [True] * 5  # trials alone in groups 1 and 2
    assert outlined_state(tmp_path).head_seq == 13


@pytest.mark.parametrize("tamper", [row[0] for row in tampering.TABLE], ids=lambda t: t.__name__)
def test_nothing_tampered_with_passes_both_the_helpers_and_the_order(
    tmp_path: Path, tamper: Callable[[Path], None]
) -> None:
    root = written(tmp_path / "store", whole_run(4))
    backend = LocalDisk(root)
    pieces = pieces_of(backend, RUN)
    tamper(root)
    if all(share_is_sound(backend, pieces, number, 2) for number in range(2)):
        with pytest.raises(LogError):
            outlined_state(root)


def test_a_score_with_anothers_evaluation_is_seen_by_the_helpers(tmp_path: Path) -> None:
    batches = whole_run(0)[:3]
    foreign = scored(0).model_copy(update={"evaluation": scored(1).evaluation})
    batches.append([Entry(proposed(0), 0, 0), Entry(foreign, 0, 0)])
    root = written(tmp_path, batches)
    backend = LocalDisk(root)
    assert not share_is_sound(backend, pieces_of(backend, RUN), 0, 1)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("run_id", [RUN, CHILD])
def test_a_sound_run_has_the_report_of_a_single_process(
    tmp_path: Path, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = forked(tmp_path)
    module = import_module("storage.verify")
    alone = module._event_by_event
    monkeypatch.setattr(module, "_event_by_event", lambda *_: None)
    report = verify(root, run_id)
    backend = LocalDisk(root)
    assert report == alone(backend, survey(backend, run_id), read_anchor(backend, run_id))
    assert (report.ok, report.blobs) == (True, 2 if run_id == RUN else 4)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize(
    "tamper", [tampering.edit_payload, tampering.change_hot_column, tampering.drop_segment]
)
def test_the_first_bad_event_is_named_as_by_a_single_process(
    tmp_path: Path, tamper: Callable[[Path], None]
) -> None:
    first_bad, said = next(row[1:] for row in tampering.TABLE if row[0] is tamper)
    root = written(tmp_path / "store", whole_run(4))
    tamper(root)
    report = verify(root, RUN)
    assert report.first_bad == first_bad
    assert report.problem is not None
    assert said in report.problem


def test_helpers_look_in_processes_of_their_own(tmp_path: Path) -> None:
    root = written(tmp_path / "store", whole_run(4))
    pieces = pieces_of(LocalDisk(root), RUN)
    with helpers(root, pieces, 2) as helping:
        assert helping.found_all_sound()
    tampering.edit_payload(root)
    with helpers(root, pieces, 2) as helping:
        assert not helping.found_all_sound()


def test_helpers_that_are_not_waited_for_are_stopped(tmp_path: Path) -> None:
    with helpers(tmp_path, [], 1) as helping:
        (process,) = helping._processes
    assert process.returncode is not None
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_only_long_runs_get_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helped_verification, "available_cpus", lambda: 4)
    assert helpers_worth([Piece(RUN, 0, 19_000)]) == 0
    assert helpers_worth([Piece(RUN, 0, 15_000), Piece(CHILD, 15_000, 15_000)]) == 3
    assert helpers_worth([Piece(RUN, 0, 10**6)]) == 4
    monkeypatch.setattr(helped_verification, "available_cpus", lambda: 1)
    assert helpers_worth([Piece(RUN, 0, 10**6)]) == 0
