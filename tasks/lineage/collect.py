"""Collects the lineage of a trial from its run, the runs above it and the rest of the store."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from schemas.events import (
    RunFinished,
    RunInterrupted,
    RunResumed,
    RunStarted,
    TailRecovered,
    TrialInvalidated,
)
from schemas.lineage import (
    Anchor,
    Competitor,
    InputFile,
    Lineage,
    Occurrence,
    ResolvedInput,
    SignaturePart,
)
from schemas.signature import content_hash
from schemas.workload import Workload
from storage import EventLog, State, Store
from storage.appearances import appearances
from storage.blobs import find_blob
from storage.canonical import sha256_hex
from storage.collection import cycle_collection_paused
from storage.cutting import Cut, cut_at
from storage.exports.best import is_seed
from storage.fork_steps import fork_steps, place_of
from storage.heads import read_anchor
from storage.reading import Record, lineage_of
from storage.state import Trial
from tasks.chosen_trial import chosen_trial
from tasks.lineage.generations import generations
from tasks.lineage.story import Sources, configurations, story_of
from tasks.resolve.sources import is_shipped


def lineage_of_trial(
    store: Store, run_id: str, *, trial: int | None = None, as_of: int | None = None
) -> Lineage:
    """Everything behind a trial of a run, as known at event `as_of`. Every event read is verified.

    Args:
        store: where the run lies.
        run_id: the run.
        trial: a trial's number; None: the best one then.
        as_of: number of the last event that counts; None: the run's last. Below a fork's own first
            event it is its parent's.

    Raises:
        UserError: there is no such event or trial, or nothing may win.
        DamagedLog: the run, a run above it, or a blob that is needed, is damaged.
    """
    with cycle_collection_paused():
        known = cut_at(EventLog.open(store, run_id).iterate(), run_id, Cut(event=as_of))
        searches = generations(known)
    state = searches[-1].state
    spec = state.spec
    chosen = chosen_trial(state, run_id, trial, verb="lineage")
    runs = [name for name, _ in lineage_of(store.backend, run_id)]
    until = None if as_of is None else state.last_at
    elsewhere, unread = _elsewhere(store, known, configurations(chosen.number, searches), until)
    blobs = _Blobs(store, runs)
    workload = Workload.model_validate_json(blobs.data(spec.workload_blob))
    ranked = state.ranked()
    others = [t for t in ranked if t is not chosen]
    seeds = [t for t in ranked if is_seed(state, t)]
    return Lineage(
        run_id=state.run_id,
        as_of_event=state.head_seq,
        as_of=state.last_at,
        head_hash=state.head_hash,
        anchored=_anchored(store, state.run_id),
        status=state.status,
        is_recipe=state.incumbent == chosen.number,
        trial=story_of(chosen.number, searches, Sources(store, runs, known, elsewhere)),
        files=tuple(_files(spec, workload, blobs)),
        presets={p: h for p, h in workload.files.items() if is_shipped(p)},
        workload=ResolvedInput(name=spec.workload_name, sha256=blobs.hash(spec.workload_blob)),
        cluster=ResolvedInput(name=spec.cluster_name, sha256=blobs.hash(spec.cluster_blob)),
        signature=_signature(spec),
        stack_origin=spec.signature_parts.get("origin", {}),
        refold_version=spec.refold_version,
        projection_version=spec.projection_version,
        schema_versions=tuple(sorted({record.envelope.schema_version for record in known})),
        lesser_paths=spec.lesser_paths,
        search=spec.search,
        axes=state.axes,
        baseline=_against(state.baseline, chosen),
        best_seed=_against(seeds[0] if seeds else None, chosen),
        next_best=_against(others[0] if others else None, chosen),
        ranked=tuple(c for t in ranked if (c := _against(t, chosen)) is not None),
        candidates=len(state.trials),
        rejected=_rejected(state),
        forks=tuple(fork_steps(known)),
        history=tuple(_history(known)),
        unread=tuple(unread),
    )


class _Blobs:
    """The blobs of a lineage. Each is checked against its hash as it is read."""

    def __init__(self, store: Store, runs: Sequence[str]) -> None:
        self._store = store
        self._runs = runs

    def data(self, digest: str) -> bytes:
        return find_blob(self._store.backend, self._runs, digest)

    def hash(self, digest: str) -> str:
        return sha256_hex(self.data(digest))


def _files(spec: RunStarted, workload: Workload, blobs: _Blobs) -> Iterator[InputFile]:
    for path, digest in sorted(spec.input_blobs.items()):
        data = blobs.data(digest)
        yield InputFile(
            path=path,
            role="workload" if path in workload.files else "cluster",
            sha256=sha256_hex(data),
            sha256_as_read=workload.files.get(path),
            text=data.decode(),
        )


def _signature(spec: RunStarted) -> dict[str, SignaturePart]:
    hashes: dict[str, str] = spec.signature.model_dump()
    return {
        part: SignaturePart(
            hash=known,
            made_of=spec.signature_parts.get(part),
            hash_holds=content_hash(spec.signature_parts.get(part)) == known,
        )
        for part, known in hashes.items()
    }


def _anchored(store: Store, run_id: str) -> Anchor | None:
    anchor = read_anchor(store.backend, run_id)
    return None if anchor is None else Anchor(seq=anchor.head.seq, hash=anchor.head.hash)


def _elsewhere(
    store: Store, known: Sequence[Record], trial_ids: frozenset[str], until: datetime | None
) -> tuple[list[Record], list[str]]:
    """What the rest of the store says of these configurations, up to that time."""
    mine = {(envelope.run_id, envelope.seq) for envelope, _ in known}
    found, unread = appearances(store.backend, trial_ids, store.run_ids())
    return [
        record
        for record in found
        if (record.envelope.run_id, record.envelope.seq) not in mine
        and (until is None or record.envelope.at <= until)
    ], unread


def _against(other: Trial | None, chosen: Trial) -> Competitor | None:
    if other is None:
        return None
    evaluation = other.evaluation
    theirs = None if evaluation is None else evaluation.tokens_per_s_per_gpu
    mine = None if chosen.evaluation is None else chosen.evaluation.tokens_per_s_per_gpu
    return Competitor(
        trial=other.number,
        trial_id=other.proposed.trial_id,
        rule=other.proposed.rule,
        tag=other.proposed.tag,
        fits=None if evaluation is None else evaluation.fits,
        tokens_per_s_per_gpu=theirs,
        lead_percent=100 * (mine / theirs - 1) if mine is not None and theirs else None,
    )


def _rejected(state: State) -> dict[str, int]:
    codes = [t.rejected.code for t in state.trials.values() if t.rejected is not None]
    return dict(Counter(codes).most_common())


def _history(known: Sequence[Record]) -> Iterator[Occurrence]:
    for envelope, event in known:
        match event:
            case RunInterrupted():
                what = f"interrupted: {event.why}"
            case RunResumed():
                again = " after it had finished" if event.reopened else ""
                what = f"resumed{again} by Refold {event.refold_version}"
            case TailRecovered():
                what = f"set aside what a killed writer left: {', '.join(event.discarded)}"
            case RunFinished():
                what = f"finished: {event.why}"
            case TrialInvalidated():
                what = f"trial {envelope.trial} invalidated: {event.why}"
            case _:
                continue
        yield Occurrence(place=place_of(envelope), what=what)
