"""The event log of one run.

P1  Append-only, totally ordered, gap-free per run; every event carries its run, sequence number,
    schema version, the hash before it and its own.
P2  What a killed writer left, and a torn tail beyond the anchored head, is set aside and the
    recovery recorded. All other damage is refused, naming the first bad event. The head is anchored
    outside the run's folder, durably, by `anchor_head`.
P3  `append` expects a sequence number; a writer that is behind gets `StaleWriter`, having written
    nothing.
P4  When `append` returns, the segment and its directory entry are on disk, or an object store has
    answered for it. A batch is one segment and costs one flush of each, or one write.
P5  A run can be resumed: `state` says what is done, in flight and left (see `storage.folding`).
P7  An evaluation is found again only by all that could change it (see `storage.evaluation_cache`).
P8  Provenance is recorded as it was made, and never upgraded.
P9  A fork names its parent's event by number and hash, and shares the events up to it.
P10 Events of older schema versions are read as today's (`storage.upcasting`), newer are refused.
P13 A correction is a new event (`TrialInvalidated`).
P14 One process at a time writes, under a lease that says who and since when; a dead owner's lease
    is taken over.
P16 Every candidate ends as an evaluation or as a rejection with its reason (see `storage.state`).

No configured secret is ever written: `append` and `put_blob` refuse a value that contains one.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from schemas.errors import LogError, StaleWriter
from schemas.events import ZERO_HASH, Envelope, Event, RunForked, TailRecovered
from storage.backends import AlreadyStored, SegmentStore
from storage.backends.lease import Lease
from storage.backends.process import this_process
from storage.blobs import find_blob, read_blob
from storage.canonical import sha256_hex
from storage.chain import seal
from storage.collection import cycle_collection_paused
from storage.columns import hot_columns
from storage.compaction import compact, finish_compaction
from storage.compaction_mark import is_superseded, read_mark
from storage.extent import Origin, survey
from storage.folding import fold_records
from storage.heads import Head, read_anchor, write_anchor
from storage.layout import MAX_SEQ, blobs_prefix, events_prefix, lease_key, segment_name
from storage.reading import Record, lineage_of, records
from storage.recovery import set_aside, unrecorded
from storage.run_ids import checked_run_id, now_utc
from storage.secret_scan import Secrets
from storage.segments import Row, encode
from storage.state import State
from storage.store import Store, as_store
from storage.summary import RunSummary, summarise


class Entry(NamedTuple):
    """An event to append, with the round and the trial number it belongs to."""

    event: Event
    round: int | None = None
    trial: int | None = None


class EventLog:
    """One run's events: read by anybody, appended to by the one process that holds the lease.

    Made by `create` and `open`; a context manager that gives the lease back. Not for use by two
    threads at once.
    """

    def __init__(
        self,
        backend: SegmentStore,
        run_id: str,
        *,
        lease: Lease | None,
        writing: bool,
        clock: Callable[[], datetime],
        secrets: Collection[str],
    ) -> None:
        self.run_id = run_id
        self.lease = lease
        """The held lease; None for a reader, or a writer that asked for none."""
        self.recovered: tuple[str, ...] = ()
        """What opening for writing set aside."""
        self._backend = backend
        self._writing = writing
        self._clock = clock
        self._secrets = Secrets(secrets)
        self._first_seq = 0
        self._head: Head | None = None
        self._summary = RunSummary(run_id=run_id)

    @classmethod
    def create(
        cls,
        store: Store | Path,
        run_id: str,
        *,
        parent: Origin | None = None,
        clock: Callable[[], datetime] = now_utc,
        secrets: Collection[str] = (),
    ) -> "EventLog":
        """Begin a run: take its lease. Nothing is on disk until the first `append`.

        Args:
            store: the store, or its folder.
            run_id: a new id, as `fresh_run_id()` makes them.
            parent: the event of another run that this one continues from; its first event is then
                the `RunForked` that says so (P9).
            clock: gives each event its time.
            secrets: strings that must never be written.

        Raises:
            RunLocked: a live process is writing a run of that id.
            LogError: the store already holds a run of that id.
            DamagedLog: the parent does not verify up to that event.
        """
        backend = as_store(store).backend
        begun = backend.names(events_prefix(checked_run_id(run_id)))
        if begun or read_anchor(backend, run_id) is not None:
            raise LogError(f"run {run_id} is already in the store")
        lease = backend.acquire(lease_key(run_id), this_process(clock()))
        log = cls(backend, run_id, lease=lease, writing=True, clock=clock, secrets=secrets)
        try:
            if parent is not None:
                log._continue_from(parent)
        except BaseException:
            log.close()
            raise
        return log

    @classmethod
    def open(
        cls,
        store: Store | Path,
        run_id: str,
        *,
        writing: bool = False,
        exclusive: bool = True,
        clock: Callable[[], datetime] = now_utc,
        secrets: Collection[str] = (),
    ) -> "EventLog":
        """Open a run that is in the store.

        Opening for writing takes the lease, verifies the whole run, sets aside what a killed
        writer left, and records that (`TailRecovered`).

        Args:
            store: the store, or its folder.
            run_id: the run.
            writing: to append; else only to read.
            exclusive: False appends without the lease (a store whose locks do not reach every
                host): P3 still holds, but leftovers are left alone.
            clock: gives each event its time.
            secrets: strings that must never be written.

        Raises:
            RunNotFound: the store holds no such run.
            RunLocked: another live process writes it.
            DamagedLog, UnknownEvent: it cannot be read to its head.
        """
        backend = as_store(store).backend
        survey(backend, checked_run_id(run_id))
        if not writing:
            return cls(backend, run_id, lease=None, writing=False, clock=clock, secrets=secrets)
        lease = backend.acquire(lease_key(run_id), this_process(clock())) if exclusive else None
        log = cls(backend, run_id, lease=lease, writing=True, clock=clock, secrets=secrets)
        try:
            with cycle_collection_paused():
                log._catch_up(recover=exclusive)
        except BaseException:
            log.close()
            raise
        return log

    @property
    def head(self) -> Head | None:
        """The last event appended or read by this writer; None: the run has no event yet."""
        return self._head

    @property
    def next_seq(self) -> int:
        """Sequence number the next event will take: what `append` expects."""
        return 0 if self._head is None else self._head.seq + 1

    def append(
        self, entries: Sequence[tuple[Event, int | None, int | None]], expected_seq: int
    ) -> list[Envelope]:
        """Record events, all or none, as one segment; durable when this returns (P4).

        Args:
            entries: (event, round, trial), in order; `Entry` is one.
            expected_seq: number the first of them must take: `next_seq` as the caller knows it.

        Returns:
            The envelopes as recorded, one per entry: what `fold` takes on from the state before.

        Raises:
            StaleWriter: the number is taken, or not yet due; nothing was written (P3).
            LogError: opened for reading; an event holds a secret or a number that is not finite;
                or the disk refused. Nothing was written.
        """
        self._must_write()
        if expected_seq != self.next_seq:
            raise StaleWriter(
                f"run {self.run_id}: event {expected_seq} was to be next, but the log is at"
                f" {self.next_seq}; nothing was written"
            )
        return self._append([Entry(*entry) for entry in entries])

    def iterate(self) -> Iterator[Record]:
        """Every event on disk with its envelope, in order, each verified before it is handed out.

        Raises:
            DamagedLog: naming the first event that is not what was written.
            UnknownEvent: an event is newer than this Refold.
        """
        return records(self._backend, survey(self._backend, self.run_id))

    def read(self) -> list[Envelope]:
        """All envelopes on disk, verified; raises as `iterate` does."""
        with cycle_collection_paused():
            return [record.envelope for record in self.iterate()]

    def state(self) -> State:
        """What the run knows: the fold of its events; raises as `iterate` does."""
        with cycle_collection_paused():
            return fold_records(self.iterate())

    def refresh(self) -> None:
        """Verify the run again and stand at its end, after `StaleWriter` for one."""
        self._head, self._summary = None, RunSummary(run_id=self.run_id)
        self._catch_up(recover=False)

    def put_blob(self, data: bytes) -> str:
        """Store a large text beside the run, durably; returns its SHA-256 for the payload.

        Raises:
            LogError: it holds a secret, or cannot be written.
        """
        self._must_write()
        self._secrets.refuse(data, f"run {self.run_id}: a blob")
        digest = sha256_hex(data)
        try:
            self._backend.create(f"{blobs_prefix(self.run_id)}/{digest}", data)
        except AlreadyStored:
            read_blob(self._backend, self.run_id, digest)
        return digest

    def get_blob(self, digest: str) -> bytes:
        """The blob with this SHA-256, the run's own or one of a run it continues.

        Raises:
            DamagedLog: it is missing, or not what was stored.
        """
        return find_blob(self._backend, self._lineage(), digest)

    def anchor_head(self) -> None:
        """Anchor the last event outside the run's folder, durably (P2).

        To be called at each round's end, after `RunFinished` and before every export.

        Raises:
            StaleWriter: a later event is anchored already.
            LogError: it cannot be written; the anchor before stands.
        """
        self._must_write()
        if self._head is None:
            return
        anchored = read_anchor(self._backend, self.run_id)
        if anchored is not None and anchored.head.seq > self._head.seq:
            raise StaleWriter(
                f"run {self.run_id}: event {anchored.head.seq} is anchored already, this writer"
                f" is at {self._head.seq}"
            )
        write_anchor(self._backend, self.run_id, self._first_seq, self._head, self._summary)

    def compact(self) -> int:
        """Puts the run's events into one segment; returns how many it had. For a finished run: the
        head is anchored first.

        Raises:
            LogError: opened without the lease; or as `storage.compaction.compact`.
        """
        if self.lease is None:
            raise LogError(f"run {self.run_id} is compacted by the holder of its lease only")
        self.anchor_head()
        with cycle_collection_paused():
            return compact(self._backend, survey(self._backend, self.run_id))

    def close(self) -> None:
        """Give the lease back; the log can no longer be appended to."""
        self._writing = False
        if self.lease is not None:
            self.lease.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _lineage(self) -> list[str]:
        if self.next_seq == self._first_seq and self._writing:
            return [self.run_id]  # nothing is on disk yet
        return [run_id for run_id, _ in lineage_of(self._backend, self.run_id)]

    def _must_write(self) -> None:
        if not self._writing:
            raise LogError(f"run {self.run_id} is not open for writing")
        if self.lease is not None:
            self.lease.check()

    def _append(self, entries: list[Entry]) -> list[Envelope]:
        if not entries:
            return []
        if self._first_seq == self.next_seq > 0 and not isinstance(entries[0].event, RunForked):
            raise LogError(f"run {self.run_id} is a fork, and begins with RunForked")
        rows = self._sealed(entries)
        key = f"{events_prefix(self.run_id)}/{segment_name(self.next_seq)}"
        try:
            self._backend.create(key, encode(rows))
        except AlreadyStored as error:
            raise self._overtaken() from error
        if is_superseded(read_mark(self._backend, self.run_id), self.next_seq):
            # The name was free because compaction took the segment that had it.
            self._backend.remove([key])
            raise self._overtaken()
        for (envelope, _), entry in zip(rows, entries, strict=True):
            self._advance(envelope, entry.event)
        return [row.envelope for row in rows]

    def _overtaken(self) -> StaleWriter:
        return StaleWriter(
            f"run {self.run_id}: event {self.next_seq} was appended by another writer;"
            " nothing was written",
            hint="read the run again: its state has changed",
        )

    def _continue_from(self, parent: Origin) -> None:
        extent = survey(self._backend, parent.run_id)
        summary = self._summary
        with cycle_collection_paused():
            for envelope, event in records(self._backend, extent, last=parent.seq):
                summary = summarise(summary, envelope, event)
        self._head, self._first_seq = Head(seq=parent.seq, hash=parent.hash), parent.seq + 1
        self._summary = summary

    def _sealed(self, entries: list[Entry]) -> list[Row]:
        seq = self.next_seq
        prev_hash = ZERO_HASH if self._head is None else self._head.hash
        if seq + len(entries) > MAX_SEQ:
            raise LogError(f"run {self.run_id} is full at {MAX_SEQ} events")
        rows = []
        at = self._clock()
        for offset, (event, round_number, trial) in enumerate(entries):
            envelope = seal(
                event,
                run_id=self.run_id,
                seq=seq + offset,
                prev_hash=prev_hash,
                at=at,
                round=round_number,
                trial=trial,
            )
            self._secrets.refuse(
                envelope.payload.encode(), f"run {self.run_id}: event {event.type}"
            )
            rows.append(Row(envelope, hot_columns(event)))
            prev_hash = envelope.hash
        return rows

    def _advance(self, envelope: Envelope, event: Event) -> None:
        self._head = Head(seq=envelope.seq, hash=envelope.hash)
        self._summary = summarise(self._summary, envelope, event)

    def _catch_up(self, *, recover: bool) -> None:
        """Verify the run to its end and stand there; with `recover`, clear the way first."""
        extent = survey(self._backend, self.run_id)
        self._first_seq = extent.first_seq
        recorded: list[str] = []
        for envelope, event in records(self._backend, extent):
            self._advance(envelope, event)
            if isinstance(event, TailRecovered) and envelope.run_id == self.run_id:
                recorded.extend(event.discarded)
        if not recover:
            return
        finish_compaction(self._backend, extent)
        set_aside(self._backend, extent)
        self.recovered = unrecorded(self._backend, self.run_id, recorded)
        if self.recovered:
            self._append([Entry(TailRecovered(discarded=self.recovered))])
