"""Compaction: fewer files, and nothing else that anybody could see; at no instant, to no reader."""

import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
import pyarrow.dataset as ds
import pytest

from schemas.errors import DamagedLog, LogError, StaleWriter, StoreRefused
from schemas.events import Envelope, RunResumed
from storage import Entry, EventLog, Store, list_runs
from storage.compaction_mark import read_mark
from storage.extent import survey
from storage.layout import compaction_key, discarded_prefix, events_prefix, head_key
from storage.reading import records
from storage.verify import verify
from tests.storage.builders import RUN
from tests.storage.interleaving import Interleaved, interleaved, once, operations_of
from tests.storage.lineages import CHILD, fork, note, parent_in, unflushed

pytestmark = pytest.mark.whole

ROOT = Path(__file__).parents[2]
AT = 5


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return parent_in(tmp_path / "store", 2)


@pytest.fixture
def expected(root: Path) -> list[Envelope]:
    return EventLog.open(root, RUN).read()


def segment_names(root: Path, run_id: str = RUN) -> list[str]:
    return sorted(path.name for path in (root / events_prefix(run_id)).iterdir())


def contents(root: Path) -> dict[str, bytes]:
    folder = root / events_prefix(RUN)
    return {name: (folder / name).read_bytes() for name in segment_names(root)}


def compact(store: Store | Path, run_id: str = RUN) -> int:
    with EventLog.open(store, run_id, writing=True) as log:
        return log.compact()


def compacted(root: Path) -> None:
    compact(unflushed(root))


def test_it_changes_no_event_no_hash_and_no_order(root: Path, expected: list[Envelope]) -> None:
    before = len(segment_names(root))
    listed, state = list_runs(root), EventLog.open(root, RUN).state()
    assert compact(unflushed(root)) == before > 5
    assert segment_names(root) == ["000000000000.parquet"]
    assert EventLog.open(root, RUN).read() == expected
    assert EventLog.open(root, RUN).state() == state
    assert list_runs(root) == listed
    report = verify(root, RUN)
    assert (report.ok, report.segments, report.warnings) == (True, 1, ())
    assert compact(unflushed(root)) == 0


def test_other_readers_see_each_event_once(root: Path, expected: list[Envelope]) -> None:
    fork(root, RUN, AT, CHILD, [note("one"), note("two")])
    compacted(root)
    compact(unflushed(root), CHILD)
    hashes = sorted(e.hash for e in [*expected, *EventLog.open(root, CHILD).read()[AT + 1 :]])
    glob = f"{root}/runs/*/events/*.parquet"
    assert sorted(pl.scan_parquet(glob).collect()["hash"].to_list()) == hashes
    assert sorted(h for (h,) in duckdb.sql(f"select hash from '{glob}'").fetchall()) == hashes
    runs = [str(path) for path in (root / "runs").glob("*/events/*.parquet")]
    assert sorted(ds.dataset(runs).to_table()["hash"].to_pylist()) == hashes


class Killed(BaseException):
    """What no handler of ours catches."""


def stopped_at(root: Path, step: int, error: BaseException) -> bool:
    """Compacts, with `error` ahead of operation `step` of the compaction; whether it got there."""
    reached = False

    def stop(number: int) -> None:
        nonlocal reached
        if armed and number >= first + step:
            reached = True
            raise error

    store = interleaved(root, stop)
    backend = store.backend
    assert isinstance(backend, Interleaved)
    armed, first = False, 0
    with EventLog.open(store, RUN, writing=True) as log:
        armed, first = True, backend.operations
        try:
            log.compact()
        except type(error):
            assert reached
        armed = False
    return reached


def each_step(root: Path, folder: Path, error: BaseException) -> list[Path]:
    """A copy of the store for every operation at which a compaction may be stopped, stopped."""
    copies: list[Path] = []
    while True:
        copy = folder / str(len(copies))
        shutil.copytree(root, copy)
        if not stopped_at(copy, len(copies), error):
            return copies
        copies.append(copy)


@pytest.mark.parametrize(
    "error",
    [Killed(), pytest.param(StoreRefused("the disk is full"), marks=pytest.mark.slow)],
    ids=["killed", "refused"],
)
def test_stopped_at_any_step_the_run_is_whole_and_the_next_writer_cleans_up(
    root: Path, tmp_path: Path, expected: list[Envelope], error: BaseException
) -> None:
    listed = list_runs(root)
    copies = each_step(root, tmp_path / "copies", error)
    seen = set()
    for copy in copies:
        seen.add((len(segment_names(copy)), (copy / compaction_key(RUN)).exists()))
        assert EventLog.open(copy, RUN).read() == expected
        assert list_runs(copy) == listed
        assert verify(copy, RUN).ok
        with EventLog.open(unflushed(copy), RUN, writing=True) as log:
            assert log.recovered == ()
            log.append([Entry(_resumed())], log.next_seq)
            log.compact()
        assert segment_names(copy) == ["000000000000.parquet"]
        assert EventLog.open(copy, RUN).read()[:-1] == expected
        assert verify(copy, RUN).ok
    # Without the mark, with it and all segments, and with ever fewer of them.
    assert {(8, False), (8, True), (5, True), (2, True)} <= seen


def _resumed() -> RunResumed:
    return RunResumed(refold_version="1", projection_version="1", reopened=True)


def test_whoever_looks_between_two_steps_sees_the_same_run(
    root: Path, expected: list[Envelope]
) -> None:
    """A new reader, one that looked before compaction began, and one in the middle of reading."""
    plain = unflushed(root)
    early = survey(plain.backend, RUN)
    listed = list_runs(root)
    halfway = [EventLog.open(root, RUN).iterate() for _ in range(3)]
    taken = [[next(reader) for _ in range(3 * n + 1)] for n, reader in enumerate(halfway)]
    looks = 0

    def look(number: int) -> None:
        nonlocal looks
        looks += 1
        assert EventLog.open(plain, RUN).read() == expected
        assert [r.envelope for r in records(plain.backend, early)] == expected
        assert list_runs(plain) == listed
        report = verify(plain, RUN)
        assert report.ok, report.problem

    compact(interleaved(root, look))
    assert looks > 15
    for reader, begun in zip(halfway, taken, strict=True):
        assert [r.envelope for r in [*begun, *reader]] == expected


@pytest.mark.parametrize("anchor", ["behind", pytest.param("never", marks=pytest.mark.slow)])
def test_a_run_compacted_ahead_of_any_operation_of_a_reader_reads_the_same(
    root: Path, tmp_path: Path, anchor: str
) -> None:
    with EventLog.open(unflushed(root), RUN, writing=True) as log:
        for text in ("one", "two"):
            log.append([note(text)], log.next_seq)
    if anchor == "never":
        (root / head_key(RUN)).unlink()
    expected = EventLog.open(root, RUN).read()
    unanchored = verify(root, RUN).warnings
    fork(root, RUN, AT, CHILD, [note("one")])
    child = EventLog.open(root, CHILD).read()

    def listed(store: Store) -> object:
        return [run.status for run in list_runs(store)]

    def verified(store: Store) -> object:
        report = verify(store, RUN)
        return report.problem, set(report.warnings) - set(unanchored)

    works: list[tuple[Callable[[Store], object], object, int]] = [
        (lambda store: EventLog.open(store, RUN).read(), expected, 4),
        (lambda store: EventLog.open(store, CHILD).read(), child, 6),
        (verified, (None, set()), 4),
        (listed, ["finished", "open"], 1),
    ]
    copy = tmp_path / "copy"
    for work, answer, every in works:
        for step in range(0, operations_of(root, work), every):
            shutil.copytree(root, copy)
            assert work(interleaved(copy, once(step, lambda: compacted(copy)))) == answer
            shutil.rmtree(copy)


COMPACTOR = """
    import sys
    from pathlib import Path
    from schemas.events import NoteTaken
    from storage import Entry, EventLog
    for turn in range(int(sys.argv[3])):
        with EventLog.open(Path(sys.argv[1]), sys.argv[2], writing=True) as log:
            for part in range(4):
                log.append([Entry(NoteTaken(text=f"{turn}.{part}", author="w"))], log.next_seq)
            log.compact()
    print(log.next_seq)
"""


def test_readers_in_other_processes_never_see_an_error(root: Path) -> None:
    fork(root, RUN, AT, CHILD, [note("one")])
    child = EventLog.open(root, CHILD).read()
    turns, first = 6, len(EventLog.open(root, RUN).read())
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(COMPACTOR), str(root), RUN, str(turns)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    before = 0
    while process.poll() is None:
        events = EventLog.open(root, RUN).read()
        assert len(events) >= before
        before = len(events)
        assert EventLog.open(root, CHILD).read() == child
        assert [run.status for run in list_runs(root)] == ["finished", "open"]
        report = verify(root, RUN)
        assert report.ok, report.problem
    assert int(process.communicate()[0]) == first + 4 * turns
    assert len(segment_names(root)) == 1


def test_a_writer_that_slept_through_it_is_stale_and_leaves_nothing(
    root: Path, expected: list[Envelope]
) -> None:
    asleep = EventLog.open(unflushed(root), RUN, writing=True, exclusive=False)
    with EventLog.open(unflushed(root), RUN, writing=True) as log:
        for text in ("one", "two"):
            log.append([note(text)], log.next_seq)
        log.compact()
    there = EventLog.open(root, RUN).read()
    names = segment_names(root)
    with pytest.raises(StaleWriter, match=f"event {len(expected)} was appended by another writer"):
        asleep.append([note("late")], asleep.next_seq)
    assert segment_names(root) == names
    assert EventLog.open(root, RUN).read() == there
    asleep.refresh()
    asleep.append([note("late")], asleep.next_seq)
    assert len(EventLog.open(root, RUN).read()) == len(there) + 1


def test_what_a_late_writer_left_when_it_was_killed_is_not_read_and_is_cleaned_up(
    root: Path,
) -> None:
    asleep = EventLog.open(unflushed(root), RUN, writing=True, exclusive=False)
    with EventLog.open(unflushed(root), RUN, writing=True) as log:
        log.append([note("one")], log.next_seq)
        log.compact()
    there = EventLog.open(root, RUN).read()

    def killed(*_: object) -> None:
        raise Killed

    asleep._backend.remove = killed  # type: ignore[method-assign]
    with pytest.raises(Killed):
        asleep.append([note("late")], asleep.next_seq)
    assert len(segment_names(root)) == 2
    assert EventLog.open(root, RUN).read() == there
    report = verify(root, RUN)
    assert report.ok
    assert "beside the segment that has its events" in report.warnings[0]
    with EventLog.open(unflushed(root), RUN, writing=True) as log:
        assert log.recovered == ()
    assert len(segment_names(root)) == 1
    assert verify(root, RUN).warnings == ()


def test_a_finished_run_taken_up_again_is_compacted_again_and_stays_one_file(root: Path) -> None:
    for turn in range(5):
        with EventLog.open(unflushed(root), RUN, writing=True) as log:
            log.append([Entry(_resumed())], log.next_seq)
            log.append([note(f"turn {turn}")], log.next_seq)
            log.compact()
        mark = read_mark(Store.at(root).backend, RUN)
        assert mark is not None
        assert mark.through == log.next_seq - 1
        assert segment_names(root) == ["000000000000.parquet"]
    assert [n.text for n in EventLog.open(root, RUN).state().notes][-5:] == [
        f"turn {turn}" for turn in range(5)
    ]
    assert not (root / discarded_prefix(RUN)).exists()
    assert verify(root, RUN).ok


def test_only_the_holder_of_the_lease_compacts(root: Path) -> None:
    log = EventLog.open(unflushed(root), RUN, writing=True, exclusive=False)
    with pytest.raises(LogError, match="by the holder of its lease"):
        log.compact()
    assert len(segment_names(root)) > 1


def test_a_damaged_run_is_left_as_it_is(root: Path) -> None:
    with EventLog.open(unflushed(root), RUN, writing=True) as log:
        (root / events_prefix(RUN) / segment_names(root)[4]).write_bytes(b"damaged")
        before = {
            name: (root / events_prefix(RUN) / name).read_bytes() for name in segment_names(root)
        }
        with pytest.raises(DamagedLog):
            log.compact()
    after = {name: (root / events_prefix(RUN) / name).read_bytes() for name in segment_names(root)}
    assert after == before
    assert not (root / compaction_key(RUN)).exists()


@pytest.mark.parametrize("text", ["", "{}", '{"run_id":"another","through":3}'])
def test_a_mark_that_is_not_one_is_damage(root: Path, text: str) -> None:
    compacted(root)
    (root / compaction_key(RUN)).write_text(text)
    with pytest.raises(DamagedLog, match="its compaction mark"):
        EventLog.open(root, RUN)
    assert "its compaction mark" in str(verify(root, RUN).problem)


def test_a_mark_alone_hides_no_event(root: Path, expected: list[Envelope]) -> None:
    mark = root / compaction_key(RUN)
    mark.write_text(f'{{"run_id":"{RUN}","through":999}}')
    assert EventLog.open(root, RUN).read() == expected
    names = segment_names(root)
    with EventLog.open(unflushed(root), RUN, writing=True):
        pass
    assert segment_names(root) == names
    (root / events_prefix(RUN) / names[5]).unlink()
    with pytest.raises(DamagedLog, match="is missing"):
        EventLog.open(root, RUN).read()
