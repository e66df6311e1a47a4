"""Where a configuration occurs in a store: the events about it, of whichever run."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from schemas.errors import LogError
from schemas.events import TrialInvalidated, TrialRejected, TrialScored
from storage.backends import NotStored, SegmentStore
from storage.extent import read_segment, survey
from storage.reading import Record, records
from storage.segments import ForeignSegment, TornSegment

Verdict = TrialScored | TrialRejected | TrialInvalidated


class Appearances(NamedTuple):
    """Events about some configurations, and the runs that could not be looked through."""

    records: list[Record]
    unread: list[str]


def appearances(
    backend: SegmentStore, trial_ids: Collection[str], run_ids: Iterable[str]
) -> Appearances:
    """The verdicts on `trial_ids`, and corrections of them, that `run_ids` recorded themselves.

    The `trial_id` column says which runs are worth reading; those are verified as they are read.
    """
    found: list[Record] = []
    unread: list[str] = []
    for run_id in run_ids:
        try:
            if _names(backend, run_id, trial_ids):
                found += _verdicts(backend, run_id, trial_ids)
        except LogError as error:
            unread.append(f"{error}")
    return Appearances(found, unread)


def _names(backend: SegmentStore, run_id: str, trial_ids: Collection[str]) -> bool:
    for first_seq in survey(backend, run_id).segments:
        try:
            rows = read_segment(backend, run_id, first_seq)
        except (NotStored, TornSegment, ForeignSegment):
            return True  # compacted a moment ago, or damaged: reading the run says which
        if any(row.hot.trial_id in trial_ids for row in rows):
            return True
    return False


def _verdicts(backend: SegmentStore, run_id: str, trial_ids: Collection[str]) -> list[Record]:
    return [
        record
        for record in records(backend, survey(backend, run_id))
        if record.envelope.run_id == run_id and is_verdict_on(record, trial_ids)
    ]


def is_verdict_on(record: Record, trial_ids: Collection[str]) -> bool:
    """Whether an event decides on one of `trial_ids`, or corrects such a decision."""
    return isinstance(record.event, Verdict) and record.event.trial_id in trial_ids
