"""The listing of a store's runs: heads and their summaries, and only what lies beyond them."""

from pathlib import Path

from schemas.errors import LogError
from storage.backends import SegmentStore
from storage.chain import flaw
from storage.codec import event_of
from storage.heads import read_anchor
from storage.layout import events_prefix, first_seq_of, segment_name
from storage.segments import ForeignSegment, TornSegment, decode
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
    summary = RunSummary(run_id=run_id)
    try:
        anchored = read_anchor(backend, run_id)
        known = anchored.known_summary() if anchored else None
        summary = known or summary
        prev_hash = anchored.head.hash if anchored and known else None
        segments = _segments(backend, run_id)
        for first_seq in segments:
            if first_seq >= summary.events:
                summary, prev_hash = _extended(backend, summary, first_seq, prev_hash)
    except LogError as error:
        return summary.model_copy(update={"status": "damaged", "problem": str(error)})
    if anchored is not None and (not segments or summary.events <= anchored.head.seq):
        missing = summary.events if segments else 0
        problem = f"event {missing} is missing; event {anchored.head.seq} was anchored"
        return summary.model_copy(update={"status": "damaged", "problem": problem})
    return summary


def _segments(backend: SegmentStore, run_id: str) -> list[int]:
    names = backend.names(events_prefix(run_id))
    return [seq for name in names if (seq := first_seq_of(name)) is not None]


def _extended(
    backend: SegmentStore, summary: RunSummary, first_seq: int, prev_hash: str | None
) -> tuple[RunSummary, str | None]:
    """`summary` with one more segment, and its last hash; a torn one adds nothing: resuming will
    set it aside. `prev_hash`: what the segment follows; None: that was not read."""
    data = backend.read(f"{events_prefix(summary.run_id)}/{segment_name(first_seq)}")
    try:
        rows = decode(data)
    except TornSegment:
        return summary, prev_hash
    except ForeignSegment as error:
        raise LogError(f"run {summary.run_id}, event {first_seq}: {error}") from error
    for envelope, _ in rows:
        seq = summary.events
        if envelope.seq > seq:
            raise LogError(f"run {summary.run_id}, event {seq}: is missing")
        before = envelope.prev_hash if prev_hash is None else prev_hash
        problem = flaw(envelope, run_id=summary.run_id, seq=seq, prev_hash=before)
        if problem is not None:
            raise LogError(f"run {summary.run_id}, event {seq}: {problem}")
        summary, prev_hash = summarise(summary, envelope, event_of(envelope)), envelope.hash
    return summary, prev_hash
