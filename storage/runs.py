"""The listing of a store's runs: heads and their summaries, and only what lies beyond them."""

from pathlib import Path

from schemas.errors import LogError
from storage.backends import NotStored, SegmentStore
from storage.chain import altered, misplaced
from storage.codec import event_of
from storage.compaction_mark import is_superseded, read_mark
from storage.extent import read_segment, segments_of, survey
from storage.heads import read_anchor
from storage.reading import lineage_of, records
from storage.segments import ForeignSegment, TornSegment
from storage.store import Store, as_store
from storage.summary import RunSummary, summarise


def list_runs(store: Store | Path) -> list[RunSummary]:
    """One summary per run, oldest first.

    A listing is not a verification: it trusts the anchored summary and reads, and checks against
    the chain, only the segments after it. A run that cannot be read is listed as damaged, with the
    reason.
    """
    store = as_store(store)
    return [summary_of(store.backend, run_id) for run_id in store.run_ids()]


def summary_of(backend: SegmentStore, run_id: str) -> RunSummary:
    """The summary of one run, as of its last whole event."""
    while True:
        try:
            return _summary_of(backend, run_id)
        except _Compacted:  # by a process that anchored the whole run before
            continue


class _Compacted(Exception):
    """The run was compacted while it was read."""


def _summary_of(backend: SegmentStore, run_id: str) -> RunSummary:
    summary = RunSummary(run_id=run_id)
    try:
        anchored = read_anchor(backend, run_id)
        known = anchored.known_summary() if anchored else None
        if anchored is None or known is None:
            summary = _from_the_start(backend, run_id)
        elif not segments_of(backend, run_id):
            raise LogError(f"run {run_id}, event {anchored.first_seq}: is missing")
        else:
            summary = _extended(backend, known, anchored.head.hash)
    except LogError as error:
        return summary.model_copy(update={"status": "damaged", "problem": str(error)})
    if anchored is not None and summary.events <= anchored.head.seq:
        problem = f"event {summary.events} is missing; event {anchored.head.seq} was anchored"
        return summary.model_copy(update={"status": "damaged", "problem": problem})
    return summary


def _from_the_start(backend: SegmentStore, run_id: str) -> RunSummary:
    """From every event: nothing usable is anchored yet."""
    extent = survey(backend, run_id)
    summary = RunSummary(run_id=lineage_of(backend, run_id)[-1][0])
    for envelope, event in records(backend, extent):
        summary = summarise(summary, envelope, event)
    return summary


def _extended(backend: SegmentStore, summary: RunSummary, prev_hash: str) -> RunSummary:
    """`summary`, whose last event has the hash `prev_hash`, with the segments after it; a torn one
    adds nothing: resuming sets it aside."""
    for first_seq in segments_of(backend, summary.run_id):
        if first_seq < summary.events:
            continue
        try:
            rows = read_segment(backend, summary.run_id, first_seq)
        except TornSegment:
            continue
        except NotStored as error:
            if is_superseded(read_mark(backend, summary.run_id), first_seq):
                raise _Compacted from error
            raise LogError(f"run {summary.run_id}, event {first_seq}: has vanished") from error
        except ForeignSegment as error:
            raise LogError(f"run {summary.run_id}, event {first_seq}: {error}") from error
        for envelope, _ in rows:
            seq = summary.events
            problem = misplaced(
                envelope, run_id=summary.run_id, seq=seq, prev_hash=prev_hash
            ) or altered(envelope)
            if problem is not None:
                raise LogError(f"run {summary.run_id}, event {seq}: {problem}")
            summary, prev_hash = summarise(summary, envelope, event_of(envelope)), envelope.hash
    return summary
