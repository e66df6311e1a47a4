"""What of a run lies in the store: its segments, its anchor, and the run it continues."""

from collections.abc import Callable
from typing import NamedTuple

from schemas.errors import DamagedLog, LogError, RunNotFound
from schemas.events import RunForked
from storage.backends import NotStored, SegmentStore
from storage.codec import event_of
from storage.compaction_mark import CompactionMark, read_mark
from storage.heads import Head, read_anchor
from storage.layout import events_prefix, first_seq_of, segment_name
from storage.segments import ForeignSegment, Row, TornSegment, decode


class Origin(NamedTuple):
    """The event a forked run continues from: number `seq` of `run_id`, which has this hash."""

    run_id: str
    seq: int
    hash: str


class Extent(NamedTuple):
    """What lies in a run's folder."""

    run_id: str
    anchor: Head | None
    first_seq: int
    """Number of its own first event; those before it are its origin's."""
    origin: Origin | None
    """Set for a fork."""
    segments: tuple[int, ...]
    """First sequence number of each segment, in order, torn ones at the end left out."""
    torn: tuple[str, ...]
    """Segments at the end, beyond the anchored head, that are not whole: nobody was told that
    their events are safe, or the disk lost them since."""
    mark: CompactionMark | None
    """Which segments the first one stands for."""


def survey(backend: SegmentStore, run_id: str) -> Extent:
    """Look at a run without reading it all: only segments at the end that may be torn, and the
    first of a fork.

    Raises:
        RunNotFound: the store holds no such run, or what a process killed before its first event
            left of one.
        DamagedLog: the events' folder holds a Parquet file that is not a segment.
    """
    # The anchor first: a writer appends, then anchors, so that read in this order the anchor can
    # never be ahead of the segments seen.
    anchored = read_anchor(backend, run_id)
    anchor = anchored.head if anchored else None
    segments = segments_of(backend, run_id)
    mark = read_mark(backend, run_id)
    torn: list[str] = []
    while segments and (anchor is None or segments[-1] > anchor.seq):
        try:
            read_segment(backend, run_id, segments[-1])
        except TornSegment:
            torn.append(segment_name(segments.pop()))
        except NotStored:
            segments.pop()  # compacted away since they were listed
        except ForeignSegment:
            break
        else:
            break
    if not segments and anchor is None:
        raise RunNotFound(f"no run {run_id} in the store")
    origin = _origin(backend, run_id, segments[0]) if segments and segments[0] > 0 else None
    first_seq = origin.seq + 1 if origin else 0
    if anchored is not None and anchored.first_seq != first_seq:
        if origin is not None:
            what = f"begins with event {first_seq}, its anchored head says {anchored.first_seq}"
            raise DamagedLog(f"run {run_id}: {what}")
        first_seq = anchored.first_seq
    return Extent(run_id, anchor, first_seq, origin, tuple(segments), tuple(reversed(torn)), mark)


def has_begun(backend: SegmentStore, run_id: str) -> bool:
    """Whether a run's folder holds events or should: not what a process killed too early left."""
    try:
        survey(backend, run_id)
    except RunNotFound:
        return False
    except LogError:
        return True  # a damaged run is a run
    return True


def segments_of(backend: SegmentStore, run_id: str) -> list[int]:
    """First sequence number of every segment in a run's folder, in order.

    Raises:
        DamagedLog: a Parquet file there is not a segment.
    """
    found = []
    for name in backend.names(events_prefix(run_id)):
        first_seq = first_seq_of(name)
        if first_seq is not None:
            found.append(first_seq)
        elif name.endswith(".parquet"):
            raise DamagedLog(f"run {run_id}: {name} lies among its segments and is not one")
    return found


def read_segment(
    backend: SegmentStore,
    run_id: str,
    first_seq: int,
    decoder: Callable[[bytes], list[Row]] = decode,
) -> list[Row]:
    """The rows of a segment, as `decoder` makes them.

    Raises:
        NotStored, TornSegment, ForeignSegment: there is none, or not a whole one of ours.
    """
    return decoder(backend.read(f"{events_prefix(run_id)}/{segment_name(first_seq)}"))


def _origin(backend: SegmentStore, run_id: str, first_seq: int) -> Origin | None:
    """Where a run whose first segment does not begin at 0 says it comes from; None: it does not
    say, and reading it names what is missing."""
    try:
        event = event_of(read_segment(backend, run_id, first_seq)[0].envelope)
    except (NotStored, TornSegment, ForeignSegment, DamagedLog):
        return None
    if not isinstance(event, RunForked) or event.parent_seq != first_seq - 1:
        return None
    return Origin(event.parent, event.parent_seq, event.parent_hash)
