"""P2: a segment that ends after any of its bytes: set aside beyond the head, refused below it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.errors import DamagedLog
from schemas.events import NoteTaken, TailRecovered
from storage import Entry, EventLog, Store, list_runs, verify
from storage.backends.local import LocalDisk
from tests.storage.builders import RUN, Clock, segments, started

pytestmark = pytest.mark.whole

ENDS_BYTES, STEP_BYTES = 16, 127
NOTE = Entry(NoteTaken(text="the last words", author="test"))


def lengths(total: int) -> Iterator[int]:
    """How much of `total` bytes is there: each number near both ends, some in between."""
    for length in range(total):
        if length < ENDS_BYTES or length >= total - ENDS_BYTES or length % STEP_BYTES == 0:
            yield length


def two_segments(root: Path, *, anchored: int) -> Store:
    """A store with a run of two events, each a segment; its head is anchored at `anchored`."""
    store = Store(root, LocalDisk(root, fsync=lambda descriptor: None))
    blob = b"kept"
    with EventLog.create(store, RUN, clock=Clock()) as log:
        digest = log.put_blob(blob)
        log.append([Entry(started(workload_blob=digest, cluster_blob=digest))], 0)
        if anchored == 0:
            log.anchor_head()
        log.append([NOTE], 1)
        if anchored == 1:
            log.anchor_head()
    return store


def is_recovered(store: Store, whole: EventLog, name: str) -> None:
    """The next writer sets `name` aside, says so, and goes on after the anchored head."""
    first = whole.read()[:1]
    assert list_runs(store)[0].problem is None
    assert verify(store, RUN).problem is None
    with EventLog.open(store, RUN, writing=True, clock=Clock()) as log:
        assert log.recovered == (name,)
        log.append([NOTE], log.next_seq)
    records = list(whole.iterate())
    assert [record.envelope for record in records][:1] == first
    assert [record.event for record in records][1:] == [
        TailRecovered(discarded=(name,)),
        NOTE.event,
    ]
    (discarded,) = (store.root / "runs" / f"run_id={RUN}" / "discarded").iterdir()
    assert discarded.name == name
    discarded.unlink()


def test_a_segment_beyond_the_head_is_set_aside_at_any_length(tmp_path: Path) -> None:
    store = two_segments(tmp_path, anchored=0)
    log = EventLog.open(store, RUN)
    _, last = segments(tmp_path)
    data = last.read_bytes()
    for length in lengths(len(data)):
        for later in segments(tmp_path)[1:]:
            later.unlink()
        last.write_bytes(data[:length])
        is_recovered(store, log, last.name)


def test_a_temporary_file_is_set_aside_at_any_length(tmp_path: Path) -> None:
    store = two_segments(tmp_path, anchored=0)
    log = EventLog.open(store, RUN)
    _, last = segments(tmp_path)
    data = last.read_bytes()
    for length in (*lengths(len(data)), len(data)):
        for later in segments(tmp_path)[1:]:
            later.unlink()
        temporary = last.with_name(f".tmp-{last.name}-0123456789abcdef")
        temporary.write_bytes(data[:length])
        is_recovered(store, log, temporary.name[1:])


@pytest.mark.parametrize("seq", [0, 1])
def test_a_segment_at_or_below_the_head_is_refused_at_any_length(tmp_path: Path, seq: int) -> None:
    store = two_segments(tmp_path, anchored=1)
    torn = segments(tmp_path)[seq]
    data = torn.read_bytes()
    for length in lengths(len(data)):
        torn.write_bytes(data[:length])
        report = verify(store, RUN)
        assert report.first_bad == seq
        assert f"event {seq}: segment {torn.name} is torn" in (report.problem or "")
        for writing in (False, True):
            with pytest.raises(DamagedLog, match=f"event {seq}: "):
                EventLog.open(store, RUN, writing=writing).read()
        assert torn.read_bytes() == data[:length]
    torn.write_bytes(data)
    assert verify(store, RUN).problem is None
