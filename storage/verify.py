"""Verification: everything a run claims about itself, checked again."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from schemas.errors import DamagedLog, LogError
from schemas.model import FrozenModel
from storage.backends import NotStored, SegmentStore
from storage.backends.local import LocalDisk
from storage.beside import check_head, check_mark
from storage.blobs import blobs_of, read_blob
from storage.collection import cycle_collection_paused
from storage.compaction import left_behind
from storage.extent import Extent, survey
from storage.folding import fold_records
from storage.heads import AnchoredHead, read_anchor
from storage.helped_verification import helpers, helpers_worth, outlined, pieces_of
from storage.layout import segment_name
from storage.nights import fold_night
from storage.reading import BadEvent, Reading, Record, records, sound
from storage.run_ids import checked_run_id
from storage.segments import ForeignSegment, TornSegment, decode
from storage.store import Store, as_store
from storage.summary import SUMMARY_VERSION, Summariser


class Report(FrozenModel):
    """The outcome of a verification."""

    run_id: str
    events: int = 0
    """Events found good, from the first on."""
    segments: int = 0
    blobs: int = 0
    """Blobs found good."""
    anchored_seq: int | None = None
    head_hash: str | None = None
    """Hash of the last good event."""
    first_bad: int | None = None
    """Number of the first bad event."""
    problem: str | None = None
    """What is wrong with it, or with the run; None: nothing."""
    warnings: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Nothing is wrong."""
        return self.problem is None


def verify(store: Store | Path, run_id: str) -> Report:
    """Re-derive chain, hot columns, order, schema versions, canonical form, fold, blobs, and what
    the anchored head and the compaction mark say.

    A fork is verified through: with the events and blobs it has from the runs above it.

    Raises:
        RunNotFound: the store holds no such run.
    """
    return _verified(as_store(store).backend, run_id, _of_a_run)


def verify_night(store: Store, night_id: str) -> Report:
    """`verify`, for a night.

    Raises:
        RunNotFound: the store holds no such night.
    """
    return _verified(store.nights.backend, night_id, _of_a_night)


def _verified(
    backend: SegmentStore,
    run_id: str,
    report: Callable[[SegmentStore, Extent, AnchoredHead | None], Report],
) -> Report:
    try:
        # The anchor before the events, as everywhere: it is then never ahead of them.
        anchored = read_anchor(backend, checked_run_id(run_id))
        extent = survey(backend, run_id)
    except LogError as error:
        return Report(run_id=run_id, problem=str(error))
    return report(backend, extent, anchored)


def _of_a_run(backend: SegmentStore, extent: Extent, anchored: AnchoredHead | None) -> Report:
    helped = _with_helpers(backend, extent, anchored)
    return helped or _event_by_event(backend, extent, anchored)


def _of_a_night(backend: SegmentStore, extent: Extent, anchored: AnchoredHead | None) -> Report:
    return _event_by_event(backend, extent, anchored, fold_night)


def _with_helpers(
    backend: SegmentStore, extent: Extent, anchored: AnchoredHead | None
) -> Report | None:
    """The report of a long run in which nothing is wrong; None: it is to be read event by event."""
    check = _Check(backend, extent, anchored)
    try:
        pieces = pieces_of(backend, extent.run_id)
        count = helpers_worth(pieces)
        if not count or not isinstance(backend, LocalDisk):
            return None
        with helpers(backend.root, pieces, count) as helping, cycle_collection_paused():
            fold_records(check.passing(records(backend, extent, reading=outlined())))
            check.beside()
            check.blobs()
            return check.report(None, None) if helping.found_all_sound() else None
    except (LogError, OSError):
        return None


def _event_by_event(
    backend: SegmentStore,
    extent: Extent,
    anchored: AnchoredHead | None,
    fold_all: Callable[[Iterator[Record]], object] = fold_records,
) -> Report:
    check = _Check(backend, extent, anchored)
    thorough = Reading(decode, partial(sound, in_canonical_form=True))
    try:
        with cycle_collection_paused():
            fold_all(check.passing(records(backend, extent, reading=thorough)))
        check.beside()
        check.blobs()
    except BadEvent as error:
        return check.report(str(error), error.seq)
    except LogError as error:
        return check.report(str(error), check.events)
    return check.report(None, None)


class _Check:
    """Counts what was found good on the way."""

    def __init__(
        self, backend: SegmentStore, extent: Extent, anchored: AnchoredHead | None
    ) -> None:
        self._backend = backend
        self._extent = extent
        self._anchored = anchored
        self._blobs: dict[tuple[str, str], int] = {}
        self._good_blobs = 0
        self._head_hash: str | None = None
        self._summariser = Summariser(extent.run_id)
        self.events = 0

    def passing(self, stream: Iterator[Record]) -> Iterator[Record]:
        """`stream`, the blobs it refers to noted."""
        for record in stream:
            envelope, event = record
            for digest in blobs_of(event):
                self._blobs.setdefault((envelope.run_id, digest), envelope.seq)
            yield record
            self.events += 1
            if self._anchored is not None and envelope.seq <= self._anchored.head.seq:
                self._summariser.add(envelope, event)
            self._head_hash = envelope.hash

    def blobs(self) -> None:
        """Every blob an event refers to is there and is what its name says."""
        for (run_id, digest), seq in self._blobs.items():
            try:
                read_blob(self._backend, run_id, digest)
            except DamagedLog as error:
                raise BadEvent(run_id, seq, f"refers to a bad blob ({error})") from error
            self._good_blobs += 1

    def beside(self) -> None:
        """What lies beside the events says the same as they do."""
        if self._anchored is not None:
            check_head(self._anchored, self._extent, self._summariser.summary)
        check_mark(self._backend, self._extent)

    def report(self, problem: str | None, first_bad: int | None) -> Report:
        extent = self._extent
        warnings = [f"{name} is torn: the next writer sets it aside" for name in extent.torn]
        warnings += [
            f"{segment_name(seq)} lies beside the segment that has its events: the next writer"
            " removes it"
            for seq in self._left_behind()
        ]
        if self._anchored is not None and self._anchored.summary_version != SUMMARY_VERSION:
            warnings.append("the summary at its anchored head is another version's: not checked")
        if extent.anchor is None:
            warnings.append("no head is anchored: a deleted tail would go unseen")
        return Report(
            run_id=extent.run_id,
            events=self.events,
            segments=len(extent.segments),
            blobs=self._good_blobs,
            anchored_seq=None if extent.anchor is None else extent.anchor.seq,
            head_hash=self._head_hash,
            first_bad=first_bad,
            problem=problem,
            warnings=tuple(warnings),
        )

    def _left_behind(self) -> list[int]:
        """What compaction should have removed by now."""
        try:
            return left_behind(self._backend, survey(self._backend, self._extent.run_id))
        except (LogError, NotStored, TornSegment, ForeignSegment):
            return []  # which is not the problem of a run that cannot be read
