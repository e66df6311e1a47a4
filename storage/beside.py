"""Checks of what lies beside a run's segments: its anchored head with the summary, and its mark."""

from schemas.errors import DamagedLog
from storage.backends import SegmentStore
from storage.compaction_mark import read_mark
from storage.extent import Extent, read_segment
from storage.heads import AnchoredHead
from storage.summary import SUMMARY_VERSION, RunSummary


def check_head(anchored: AnchoredHead, extent: Extent, summary: RunSummary) -> None:
    """The anchor says of a run what its events do.

    Args:
        anchored: the anchor as it was read when the events were.
        extent: the run.
        summary: of its events up to the anchored one.

    Raises:
        DamagedLog: it says something else.
    """
    whose = f"run {extent.run_id}: its anchored head"
    began = 0 if extent.origin is None else extent.origin.seq + 1
    if anchored.first_seq != began:
        raise DamagedLog(f"{whose} says it begins at event {anchored.first_seq}, not {began}")
    if anchored.summary_version == SUMMARY_VERSION and anchored.known_summary() != summary:
        raise DamagedLog(f"{whose} summarises other events than the run's")


def check_mark(backend: SegmentStore, extent: Extent) -> None:
    """The compaction mark agrees with the segment it speaks of. Not asked while it changes.

    Raises:
        DamagedLog: it does not.
    """
    if extent.mark is None or not extent.segments:
        return
    last = read_segment(backend, extent.run_id, extent.segments[0])[-1].envelope.seq
    if read_mark(backend, extent.run_id) != extent.mark:
        return
    through = extent.mark.through
    # Compaction sets the mark first: killed there, the events up to it lie in other segments.
    killed = len(extent.segments) > 1
    if last > through or (last < through and not killed):
        raise DamagedLog(
            f"run {extent.run_id}: its compaction mark says event {through}, its first segment"
            f" ends at {last}"
        )
