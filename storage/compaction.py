"""Compaction: a finished run's many segments become one, with every event, order and hash kept.

Done by the holder of the run's lease. Readers need not wait: see `storage.compaction_mark`.
"""

from storage.backends import SegmentStore
from storage.columns import hot_columns
from storage.compaction_mark import is_superseded, write_mark
from storage.extent import Extent, read_segment
from storage.layout import events_prefix, segment_name
from storage.reading import records
from storage.segments import Row, encode


def compact(backend: SegmentStore, extent: Extent) -> int:
    """Puts a run's own events into its first segment; returns how many segments that replaced.

    Raises:
        DamagedLog: the run does not verify; it is left as it is.
        StoreRefused: the disk refuses; the run is as good as before, and can be compacted again.
    """
    if len(extent.segments) < 2:
        return 0
    rows = [
        Row(envelope, hot_columns(event))
        for envelope, event in records(backend, extent)
        if envelope.run_id == extent.run_id
    ]
    write_mark(backend, extent.run_id, rows[-1].envelope.seq)
    backend.replace(_key(extent, extent.first_seq), encode(rows))
    backend.remove([_key(extent, seq) for seq in extent.segments[1:]])
    return len(extent.segments)


def finish_compaction(backend: SegmentStore, extent: Extent) -> None:
    """Removes what a killed compaction, or a writer that came too late, left behind. For the holder
    of the lease, once the run was verified."""
    backend.remove([_key(extent, seq) for seq in left_behind(backend, extent)])


def left_behind(backend: SegmentStore, extent: Extent) -> list[int]:
    """Segments, by their first event, whose events lie in the run's first one."""
    left = [seq for seq in extent.segments[1:] if is_superseded(extent.mark, seq)]
    if not left:
        return []
    held = len(read_segment(backend, extent.run_id, extent.first_seq))
    return [seq for seq in left if seq < extent.first_seq + held]


def _key(extent: Extent, first_seq: int) -> str:
    return f"{events_prefix(extent.run_id)}/{segment_name(first_seq)}"
