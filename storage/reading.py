"""Reading a run: every event checked against its chain, its columns and the anchored head."""

from collections.abc import Iterator
from typing import NamedTuple

from schemas.errors import DamagedLog, LogError, RunNotFound
from schemas.events import ZERO_HASH, Envelope, Event
from storage.backends import NotStored, SegmentStore
from storage.chain import flaw
from storage.codec import event_of
from storage.columns import HotColumns, hot_columns
from storage.heads import Head, read_anchor
from storage.layout import events_prefix, first_seq_of, segment_name
from storage.segments import ForeignSegment, Row, TornSegment, decode


class BadEvent(DamagedLog):
    """The first event that is not what was written. `seq` is its number."""

    def __init__(self, run_id: str, seq: int, what: str) -> None:
        super().__init__(f"run {run_id}, event {seq}: {what}")
        self.seq = seq


class Record(NamedTuple):
    """An envelope and the event it carries."""

    envelope: Envelope
    event: Event


class Extent(NamedTuple):
    """What lies in a run's folder."""

    run_id: str
    anchor: Head | None
    segments: tuple[int, ...]
    """First sequence number of each segment, in order, torn ones at the end left out."""
    torn: tuple[str, ...]
    """Segments at the end, beyond the anchored head, that are not whole: nobody was told that
    their events are safe, or the disk lost them since."""


def survey(backend: SegmentStore, run_id: str) -> Extent:
    """Look at a run without reading it all: only segments at the end that may be torn.

    Raises:
        RunNotFound: the store holds no such run, or what a process killed before its first event
            left of one.
        DamagedLog: the events' folder holds a Parquet file that is not a segment.
    """
    # The anchor first: a writer appends, then anchors, so that read in this order the anchor can
    # never be ahead of the segments seen.
    anchored = read_anchor(backend, run_id)
    anchor = anchored.head if anchored else None
    segments = _segments(backend, run_id)
    torn: list[str] = []
    while segments and (anchor is None or segments[-1] > anchor.seq):
        if not _is_torn(backend, run_id, segments[-1]):
            break
        torn.append(segment_name(segments.pop()))
    if not segments and anchor is None:
        raise RunNotFound(f"no run {run_id} in the store")
    return Extent(run_id, anchor, tuple(segments), tuple(reversed(torn)))


def records(backend: SegmentStore, extent: Extent) -> Iterator[Record]:
    """Every event of a run, in order, each verified before it is handed out.

    Raises:
        BadEvent: naming the first event that is missing, doubled, torn, foreign or changed.
        UnknownEvent: an event is newer than this Refold.
    """
    run_id, anchor = extent.run_id, extent.anchor
    seq, prev_hash = 0, ZERO_HASH
    for first_seq in extent.segments:
        if first_seq > seq:
            raise BadEvent(run_id, seq, f"is missing; the next segment begins at {first_seq}")
        if first_seq < seq:
            raise BadEvent(run_id, first_seq, "is there twice, in two segments")
        for row in _rows(backend, run_id, first_seq):
            yield _checked(row, run_id=run_id, seq=seq, prev_hash=prev_hash)
            prev_hash = row.envelope.hash
            if anchor is not None and anchor.seq == seq and anchor.hash != prev_hash:
                raise BadEvent(run_id, seq, "is not the event that was anchored as the head")
            seq += 1
    if anchor is not None and seq <= anchor.seq:
        raise BadEvent(run_id, seq, f"is missing; the head was anchored at event {anchor.seq}")


def _checked(row: Row, *, run_id: str, seq: int, prev_hash: str) -> Record:
    envelope = row.envelope
    problem = flaw(envelope, run_id=run_id, seq=seq, prev_hash=prev_hash)
    if problem is not None:
        raise BadEvent(run_id, seq, problem)
    event = event_of(envelope)
    expected = hot_columns(event)
    if row.hot != expected:
        raise BadEvent(run_id, seq, _column_difference(row.hot, expected))
    return Record(envelope, event)


def _column_difference(stored: HotColumns, expected: HotColumns) -> str:
    for name, there, derived in zip(HotColumns._fields, stored, expected, strict=True):
        if there != derived:
            return f"column {name} says {there!r}, its payload says {derived!r}"
    raise AssertionError("the columns are equal")


def has_begun(backend: SegmentStore, run_id: str) -> bool:
    """Whether a run's folder holds events or should: not what a process killed too early left."""
    try:
        survey(backend, run_id)
    except RunNotFound:
        return False
    except LogError:
        return True  # a damaged run is a run
    return True


def _segments(backend: SegmentStore, run_id: str) -> list[int]:
    found = []
    for name in backend.names(events_prefix(run_id)):
        first_seq = first_seq_of(name)
        if first_seq is not None:
            found.append(first_seq)
        elif name.endswith(".parquet"):
            raise DamagedLog(f"run {run_id}: {name} lies among its segments and is not one")
    return found


def _is_torn(backend: SegmentStore, run_id: str, first_seq: int) -> bool:
    try:
        decode(backend.read(f"{events_prefix(run_id)}/{segment_name(first_seq)}"))
    except (TornSegment, NotStored):
        return True
    except ForeignSegment:
        return False
    return False


def _rows(backend: SegmentStore, run_id: str, first_seq: int) -> list[Row]:
    name = segment_name(first_seq)
    try:
        return decode(backend.read(f"{events_prefix(run_id)}/{name}"))
    except TornSegment as error:
        raise BadEvent(run_id, first_seq, f"segment {name} is torn ({error})") from error
    except ForeignSegment as error:
        raise BadEvent(run_id, first_seq, f"segment {name} is foreign: {error}") from error
    except NotStored as error:
        raise BadEvent(run_id, first_seq, f"segment {name} vanished while it was read") from error
