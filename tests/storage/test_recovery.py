import os
import shutil
from pathlib import Path

import pytest

from schemas.errors import DamagedLog, RunNotFound, StaleWriter
from schemas.events import NoteTaken, TailRecovered
from storage import Entry, EventLog, Store, list_runs, verify
from tests.storage.builders import RUN, proposed, segments, started, whole_run, write, written

NOTE = Entry(NoteTaken(text="hello", author="test"))


def events_folder(root: Path) -> Path:
    return root / "runs" / f"run_id={RUN}" / "events"


def discarded(root: Path) -> list[str]:
    return sorted(p.name for p in (root / "runs" / f"run_id={RUN}" / "discarded").iterdir())


def reopened(root: Path) -> list[TailRecovered]:
    """Open for writing, append, close; the recoveries the run then tells of."""
    with EventLog.open(root, RUN, writing=True) as log:
        log.append([NOTE], log.next_seq)
    return list(EventLog.open(root, RUN).state().recoveries)


def test_p2_a_writer_killed_at_any_byte_of_its_temporary_file_is_recovered(tmp_path: Path) -> None:
    written(tmp_path, whole_run(2), anchor=False)
    last = segments(tmp_path)[-1]
    data = last.read_bytes()
    last.unlink()
    leftover = events_folder(tmp_path) / f".tmp-{last.name}-0123456789abcdef"
    cuts = [0, 1, 4, len(data) // 3, len(data) // 2, len(data) - 1, len(data)]
    for count, length in enumerate(cuts, start=1):
        leftover.write_bytes(data[:length])
        recoveries = reopened(tmp_path)
        assert len(recoveries) == count
        assert not leftover.exists()
    assert sorted(n for r in recoveries for n in r.discarded) == discarded(tmp_path)
    assert verify(tmp_path, RUN).first_bad == 0  # only its blobs are made up
    assert list_runs(tmp_path)[0].problem is None


def test_p2_a_torn_last_segment_beyond_the_head_is_set_aside_at_any_length(tmp_path: Path) -> None:
    for length_of in (lambda n: 0, lambda n: 1, lambda n: n // 2, lambda n: n - 1):
        root = written(tmp_path / str(length_of(1000)), whole_run(2), anchor=False)
        last = segments(root)[-1]
        data = last.read_bytes()
        last.write_bytes(data[: length_of(len(data))])
        before = len(EventLog.open(root, RUN).read())
        with EventLog.open(root, RUN, writing=True) as log:
            assert log.recovered == (last.name,)
            assert log.next_seq == before + 1
            assert isinstance(log.state().recoveries[-1], TailRecovered)
        assert discarded(root) == [last.name]
        assert (events_folder(root).parent / "discarded" / last.name).read_bytes() == data[
            : length_of(len(data))
        ]


def test_p2_several_empty_segments_at_the_end_are_set_aside(tmp_path: Path) -> None:
    written(tmp_path, whole_run(2), anchor=False)
    last_two = segments(tmp_path)[-2:]
    for path in last_two:
        path.write_bytes(b"")
    (recovery,) = reopened(tmp_path)
    assert recovery.discarded == tuple(p.name for p in last_two)


def test_p2_a_reader_sees_the_whole_events_before_a_torn_tail(tmp_path: Path) -> None:
    written(tmp_path, whole_run(2), anchor=False)
    whole = EventLog.open(tmp_path, RUN).read()
    last = segments(tmp_path)[-1]
    last.write_bytes(last.read_bytes()[:-1])
    assert EventLog.open(tmp_path, RUN).read() == whole[:-1]
    assert last.name in verify(tmp_path, RUN).warnings[0]
    assert last.exists(), "a reader changes nothing"


def test_p2_a_torn_segment_at_or_below_the_head_is_refused(tmp_path: Path) -> None:
    written(tmp_path, whole_run(2), anchor=True)
    last = segments(tmp_path)[-1]
    last.write_bytes(b"")
    seq = int(last.stem)
    for writing in (False, True):
        with pytest.raises(DamagedLog, match=f"event {seq}: segment .* is torn"):
            EventLog.open(tmp_path, RUN, writing=writing).read()
    assert last.exists()


def test_p2_a_torn_segment_with_whole_ones_after_it_is_no_tail(tmp_path: Path) -> None:
    written(tmp_path, whole_run(2), anchor=False)
    middle = segments(tmp_path)[-3]
    middle.write_bytes(middle.read_bytes()[:-1])
    with pytest.raises(DamagedLog, match=f"event {int(middle.stem)}: segment .* is torn"):
        EventLog.open(tmp_path, RUN, writing=True)


def test_p2_a_recovery_cut_short_is_recorded_by_the_next_writer(tmp_path: Path) -> None:
    written(tmp_path, whole_run(2))
    folder = events_folder(tmp_path).parent / "discarded"
    folder.mkdir()
    (folder / "tmp-000000000009.parquet-ab").write_bytes(b"moved, and then the process died")
    (recovery,) = reopened(tmp_path)
    assert recovery.discarded == ("tmp-000000000009.parquet-ab",)
    assert reopened(tmp_path) == [recovery]


def test_p2_leftovers_of_blobs_and_heads_are_set_aside_too(tmp_path: Path) -> None:
    written(tmp_path, whole_run(2))
    blobs = events_folder(tmp_path).parent / "blobs"
    blobs.mkdir()
    (blobs / ".tmp-abc-1").write_bytes(b"half a")
    (tmp_path / "heads" / f".tmp-{RUN}.json-2").write_bytes(b"{")
    (tmp_path / "heads" / ".tmp-another-run.json-2").write_bytes(b"{")
    (recovery,) = reopened(tmp_path)
    assert recovery.discarded == (f"tmp-{RUN}.json-2", "tmp-abc-1")
    assert (tmp_path / "heads" / ".tmp-another-run.json-2").exists(), "not this run's"


def test_p2_what_a_process_killed_before_its_first_event_left_is_no_run(tmp_path: Path) -> None:
    later = RUN.replace("2026", "2027")
    written(tmp_path, whole_run(2))
    for leftover in (".tmp-000000000000.parquet-1", "000000000000.parquet"):
        folder = tmp_path / "runs" / f"run_id={later}"
        (folder / "blobs").mkdir(parents=True)
        (folder / "blobs" / ("0" * 64)).write_bytes(b"{}")
        (folder / "events").mkdir()
        (folder / "events" / leftover).write_bytes(b"PAR1")
        assert [run.run_id for run in list_runs(tmp_path)] == [RUN]
        assert Store.at(tmp_path).find_run("latest") == RUN
        for writing in (False, True):
            with pytest.raises(RunNotFound, match=later):
                EventLog.open(tmp_path, later, writing=writing)
        shutil.rmtree(folder)


def test_an_append_returns_an_envelope_per_entry_also_after_a_recovery(tmp_path: Path) -> None:
    written(tmp_path, whole_run(2), anchor=False)
    (events_folder(tmp_path) / ".tmp-000000000009.parquet-1").write_bytes(b"")
    with EventLog.open(tmp_path, RUN, writing=True) as log:
        assert [e.type for e in log.append([NOTE, NOTE], log.next_seq)] == ["NoteTaken"] * 2


def test_p2_the_head_moves_only_forward(tmp_path: Path) -> None:
    written(tmp_path, [[Entry(started())]], anchor=False)
    ahead = EventLog.open(tmp_path, RUN, writing=True, exclusive=False)
    behind = EventLog.open(tmp_path, RUN, writing=True, exclusive=False)
    ahead.append([NOTE], 1)
    ahead.anchor_head()
    with pytest.raises(StaleWriter, match="event 1 is anchored already"):
        behind.anchor_head()
    assert verify(tmp_path, RUN).anchored_seq == 1


def test_a_leftover_link_of_a_written_segment_costs_no_event(tmp_path: Path) -> None:
    written(tmp_path, whole_run(2), anchor=False)
    last = segments(tmp_path)[-1]
    os.link(last, events_folder(tmp_path) / f".tmp-{last.name}-1")
    whole = EventLog.open(tmp_path, RUN).read()
    reopened(tmp_path)
    assert EventLog.open(tmp_path, RUN).read()[: len(whole)] == whole


def test_recovery_of_an_interrupted_search_keeps_its_trials(tmp_path: Path) -> None:
    batches = whole_run(3)[:4]
    written(tmp_path, batches, anchor=False)
    (events_folder(tmp_path) / ".tmp-000000000009.parquet-1").write_bytes(b"")
    with EventLog.open(tmp_path, RUN, writing=True) as log:
        write(log, [[Entry(proposed(1), 0, 1)]])
        state = log.state()
    assert state.in_flight == (1,)
    assert list(state.trials) == [0, 1]
