"""Reading a run: every event checked against its chain, its columns and the anchored head.

A forked run is read through: first its parent's events up to the fork, then its own.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from schemas.errors import DamagedLog, RunNotFound
from schemas.events import ZERO_HASH, Envelope, Event
from storage.backends import NotStored, SegmentStore
from storage.chain import altered, misplaced
from storage.codec import event_of
from storage.columns import HotColumns, hot_columns
from storage.compaction_mark import is_superseded, read_mark
from storage.extent import Extent, Origin, read_segment, survey
from storage.layout import segment_name
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


class Reading(NamedTuple):
    """How a run is read: what is made of a segment, and what is checked of each event by itself."""

    decode: Callable[[bytes], list[Row]]
    check: Callable[[Row], Event]
    """Raises `BadEvent`, `DamagedLog` or `UnknownEvent`."""


def records(
    backend: SegmentStore,
    extent: Extent,
    *,
    last: int | None = None,
    reading: Reading | None = None,
) -> Iterator[Record]:
    """Every event of a run, in order, each verified before it is handed out.

    Args:
        backend: where the run lies.
        extent: of the run, as `survey` saw it.
        last: number of the last event wanted; None: all there are.
        reading: how; None: every event is decoded and checked with `sound`.

    Raises:
        BadEvent: naming the first event that is missing, doubled, torn, foreign or changed.
        UnknownEvent: an event is newer than this Refold.
    """
    reading = reading or Reading(decode, sound)
    prev_hash = ZERO_HASH
    for part, cut in _parts(backend, extent, last):
        origin = part.origin
        if origin is not None and origin.hash != prev_hash:
            what = f"does not continue event {origin.seq} of run {origin.run_id}"
            raise BadEvent(part.run_id, part.first_seq, what)
        for record in _own(backend, part, prev_hash, cut, reading):
            prev_hash = record.envelope.hash
            yield record


def _parts(
    backend: SegmentStore, extent: Extent, last: int | None
) -> list[tuple[Extent, int | None]]:
    """The runs whose events make up this one, the oldest first, each with the last event wanted of
    it; those of which none is wanted left out."""
    parts = [(extent, last)]
    while (origin := parts[-1][0].origin) is not None:
        cut = origin.seq if last is None else min(last, origin.seq)
        parts.append((_parent(backend, parts[-1][0].run_id, origin), cut))
    return [part for part in reversed(parts) if part[1] is None or part[1] >= part[0].first_seq]


def _parent(backend: SegmentStore, run_id: str, origin: Origin) -> Extent:
    try:
        parent = survey(backend, origin.run_id)
    except RunNotFound as error:
        raise DamagedLog(
            f"run {run_id} continues run {origin.run_id}, which is not in the store",
            hint="bring that run's folder back: a fork shares its parent's events",
        ) from error
    # It must hold the event itself; this also ends any circle of runs that name each other.
    if parent.first_seq > origin.seq:
        raise BadEvent(run_id, origin.seq + 1, f"continues an event run {origin.run_id} has not")
    return parent


def _own(
    backend: SegmentStore, extent: Extent, prev_hash: str, last: int | None, reading: Reading
) -> Iterator[Record]:
    run_id, anchor = extent.run_id, extent.anchor
    seq = extent.first_seq
    for first_seq in extent.segments:
        if last is not None and seq > last:
            return
        if first_seq > seq:
            raise BadEvent(run_id, seq, f"is missing; the next segment begins at {first_seq}")
        if first_seq < seq:
            # The run may be compacted while it is read: then there was no mark a moment ago.
            if is_superseded(extent.mark, first_seq) or is_superseded(
                read_mark(backend, run_id), first_seq
            ):
                continue
            raise BadEvent(run_id, first_seq, "is there twice, in two segments")
        for row in _rows(backend, extent, first_seq, reading):
            envelope = row.envelope
            problem = misplaced(envelope, run_id=run_id, seq=seq, prev_hash=prev_hash)
            if problem is not None:
                raise BadEvent(run_id, seq, problem)
            yield Record(envelope, reading.check(row))
            prev_hash = envelope.hash
            if anchor is not None and anchor.seq == seq and anchor.hash != prev_hash:
                raise BadEvent(run_id, seq, "is not the event that was anchored as the head")
            seq += 1
            if last is not None and seq > last:
                return
    due = anchor.seq if anchor is not None else -1
    if seq <= due:
        raise BadEvent(run_id, seq, f"is missing; the head was anchored at event {due}")
    if last is not None and seq <= last:
        raise BadEvent(run_id, seq, "is missing; a run that was forked from this one continues it")


def sound(row: Row, *, in_canonical_form: bool = False) -> Event:
    """The event of a row whose hash, payload and columns agree.

    Raises:
        BadEvent, DamagedLog, UnknownEvent: they don't, or it is no event.
    """
    envelope = row.envelope
    problem = altered(envelope)
    if problem is not None:
        raise BadEvent(envelope.run_id, envelope.seq, problem)
    event = event_of(envelope, in_canonical_form=in_canonical_form)
    expected = hot_columns(event)
    if row.hot != expected:
        raise BadEvent(envelope.run_id, envelope.seq, _column_difference(row.hot, expected))
    return event


def _column_difference(stored: HotColumns, expected: HotColumns) -> str:
    for name, there, derived in zip(HotColumns._fields, stored, expected, strict=True):
        if there != derived:
            return f"column {name} says {there!r}, its payload says {derived!r}"
    raise AssertionError("the columns are equal")


def _rows(backend: SegmentStore, extent: Extent, first_seq: int, reading: Reading) -> list[Row]:
    """The events from `first_seq` on: its segment's, or, if the run was compacted since `extent`
    was taken, those that its first segment has of them."""
    run_id, name = extent.run_id, segment_name(first_seq)
    try:
        try:
            return read_segment(backend, run_id, first_seq, reading.decode)
        except NotStored:
            if not is_superseded(read_mark(backend, run_id), first_seq):
                raise
        rows = read_segment(backend, run_id, extent.first_seq, reading.decode)
        return rows[first_seq - extent.first_seq :]
    except TornSegment as error:
        raise BadEvent(run_id, first_seq, f"segment {name} is torn ({error})") from error
    except ForeignSegment as error:
        raise BadEvent(run_id, first_seq, f"segment {name} is foreign: {error}") from error
    except NotStored as error:
        raise BadEvent(run_id, first_seq, f"segment {name} vanished while it was read") from error


def lineage_of(backend: SegmentStore, run_id: str) -> list[tuple[str, int | None]]:
    """The runs whose events make up `run_id`, itself first, its oldest ancestor last; with each the
    number of its last event that belongs (None: all).

    Raises:
        RunNotFound, DamagedLog: one of them is not there or not readable.
    """
    parts = _parts(backend, survey(backend, run_id), None)
    return [(part.run_id, cut) for part, cut in reversed(parts)]
