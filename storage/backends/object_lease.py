"""The lease in an object store: one object that names its holder and is renewed while it lives.

Every change of it is conditional on the version that was read, so of several processes that take,
renew or give back at once exactly one succeeds. It is never deleted: what is given back is marked
free, since a delete cannot be made conditional.

Who is dead:

- a holder of this machine (same boot, same process namespace), when its process has ended;
- any other, when its lease was not renewed while we watched for as long as the holder itself said
  it would last: no clock but our own monotonic one decides that;
- any other, without watching, when the server's time of the last renewal lies further back than
  that and `CLOCKS_AGREE_S` together: the one use of a wall clock, ours against the server's.

A lease keeps two writers from doing the same work. What keeps the log whole is that a segment is
created if absent: a holder that was taken for dead, and was not, loses its next append.
"""

import atexit
import secrets
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from pydantic import ValidationError

from schemas.errors import RunLocked, StoreRefused
from schemas.model import FrozenModel
from storage.backends import AlreadyStored, NotStored
from storage.backends.lease import Owner, locked
from storage.backends.objects import Changed, Objects, Stored
from storage.backends.process import has_died

if TYPE_CHECKING:
    from obstore import UpdateVersion

CLOCKS_AGREE_S = 900.0
"""This machine's clock and the server's differ by less. S3 itself refuses requests beyond it."""
_ATTEMPTS = 5


class Pace(NamedTuple):
    """How a lease is kept alive."""

    renew_every_s: float = 10.0
    lasts_s: float = 40.0


class LeaseRecord(FrozenModel):
    """What the object says."""

    owner: Owner
    token: str
    """Of this holding; tells it from another of the same process."""
    renewals: int = 0
    lasts_s: float
    """Not renewed for this long, it may be taken over."""
    free: bool = False
    """Given back."""

    def to_bytes(self) -> bytes:
        """The object's content."""
        return self.model_dump_json().encode()


class ObjectLease:
    """A held lease, renewed by a thread of its own until it is released or lost."""

    def __init__(
        self,
        objects: Objects,
        key: str,
        record: LeaseRecord,
        version: "UpdateVersion",
        renew_every_s: float,
        run: str,
    ) -> None:
        self._objects, self._key, self._run = objects, key, run
        self._record, self._version = record, version
        self._renew_every_s = renew_every_s
        self._renewed_at = time.monotonic()
        self._lost_to: RunLocked | None = None
        self._turn = threading.Lock()
        self._ended = threading.Event()
        self.took_over: Owner | None = None
        self._thread = threading.Thread(target=self._keep, name=f"lease of {run}", daemon=True)
        # Before the interpreter goes: a thread inside a request must not outlive it.
        atexit.register(self._stop)
        self._thread.start()

    @property
    def owner(self) -> Owner:
        """See `Lease.owner`."""
        return self._record.owner

    def check(self) -> None:
        """See `Lease.check`: asks the server only when renewing has failed for too long.

        Raises:
            RunLocked: another process took it over.
            StoreRefused: that cannot be seen.
        """
        if self._lost_to is None and self._is_overdue():
            with self._turn:
                if self._is_overdue():
                    self._renew()
        if self._lost_to is not None:
            raise self._lost_to

    def release(self) -> None:
        """See `Lease.release`. A server that does not answer is left to let it run out."""
        if self._ended.is_set():
            return
        self._stop()
        atexit.unregister(self._stop)
        if self._lost_to is None:
            given_back = self._record.model_copy(update={"free": True})
            try:
                self._objects.change(self._key, given_back.to_bytes(), self._version)
            except (Changed, StoreRefused):
                return

    def _is_overdue(self) -> bool:
        return time.monotonic() - self._renewed_at > self._record.lasts_s

    def _stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _keep(self) -> None:
        while not self._ended.wait(self._renew_every_s):
            with self._turn:
                if self._lost_to is not None:
                    return
                try:
                    self._renew()
                except StoreRefused:
                    continue  # the next turn tries again; `check` tells whoever relies on it

    def _renew(self) -> None:
        """Renew, or note who has it now. The caller has the turn."""
        began = time.monotonic()
        record = self._record.model_copy(update={"renewals": self._record.renewals + 1})
        try:
            self._version = self._objects.change(self._key, record.to_bytes(), self._version)
        except Changed:
            self._lost_to = locked(self._run, _holder(self._objects, self._key))
            return
        self._record, self._renewed_at = record, began


def acquire(
    objects: Objects,
    key: str,
    owner: Owner,
    *,
    pace: Pace,
    say: Callable[[str], None],
    run: str,
) -> ObjectLease:
    """Take the lease `key` of `run` for `owner`; waits while it cannot tell whether one lives.

    Raises:
        RunLocked: a live process holds it.
        StoreRefused: the server cannot be reached, or ignores conditions.
    """
    record = LeaseRecord(owner=owner, token=secrets.token_hex(16), lasts_s=pace.lasts_s)
    for _ in range(_ATTEMPTS):
        try:
            version, took_over = objects.create(key, record.to_bytes()), None
        except AlreadyStored:
            try:
                there = objects.read(key)
                took_over = _judged(objects, key, there, owner, say, run)
                version = objects.change(key, record.to_bytes(), there.version)
            except (Changed, NotStored):
                continue  # somebody was faster: look again
        _prove_conditions(objects, key, record)
        lease = ObjectLease(objects, key, record, version, pace.renew_every_s, run)
        lease.took_over = took_over
        return lease
    raise locked(run, _holder(objects, key))


def _judged(
    objects: Objects, key: str, there: Stored, owner: Owner, say: Callable[[str], None], run: str
) -> Owner | None:
    """The dead owner of a lease that may be taken; None: it is free.

    Raises:
        RunLocked: its owner lives.
        Changed: it was changed meanwhile, but by another holder.
    """
    record = _record(there)
    if record is None:
        raise StoreRefused(
            f"{objects.where(key)}: is not a lease", hint="look at it, and remove it if it is none"
        )
    if record.free:
        return None
    if record.owner.is_same_process(owner):
        raise locked(run, record.owner)
    if has_died(record.owner) or _is_long_silent(there, record):
        return record.owner
    if record.owner.machine and record.owner.machine == owner.machine:
        raise locked(run, record.owner)
    say(
        f"{run} is held by {record.owner.words}; waiting up to {record.lasts_s:.0f} s to see"
        " whether that still runs"
    )
    _watch(objects, key, there, record, run)
    return record.owner


def _is_long_silent(there: Stored, record: LeaseRecord) -> bool:
    age_s = (datetime.now(UTC) - there.modified).total_seconds()
    return age_s > record.lasts_s + CLOCKS_AGREE_S


def _watch(objects: Objects, key: str, there: Stored, record: LeaseRecord, run: str) -> None:
    """Returns once the lease was not renewed for as long as it lasts.

    Raises:
        RunLocked: its holder renewed it.
        Changed: another one has it now, or it was given back.
    """
    until = time.monotonic() + record.lasts_s
    while time.monotonic() < until:
        time.sleep(min(1.0, record.lasts_s / 20))
        now = objects.read(key)
        if now.version == there.version:
            continue
        renewed = _record(now)
        if renewed is not None and renewed.token == record.token and not renewed.free:
            raise locked(run, record.owner)
        raise Changed(key)


def _prove_conditions(objects: Objects, key: str, record: LeaseRecord) -> None:
    """Makes sure that the server refuses what it must, with requests that change nothing if not.

    Raises:
        StoreRefused: it ignores conditions: two writers could overwrite each other's events.
    """
    try:
        objects.create(key, record.to_bytes())
    except AlreadyStored:
        pass
    else:
        raise _ignores(objects, key, "create an object only if there is none (If-None-Match)")
    try:
        objects.change(key, record.to_bytes(), {"e_tag": '"0"', "version": "0"})
    except Changed:
        pass
    else:
        raise _ignores(objects, key, "change an object only if it is unchanged (If-Match)")


def _ignores(objects: Objects, key: str, what: str) -> StoreRefused:
    return StoreRefused(
        f"{objects.where(key)}: the server does not {what}, which the log needs",
        hint="keep the store on a server that has conditional writes",
    )


def _record(stored: Stored) -> LeaseRecord | None:
    try:
        return LeaseRecord.model_validate_json(stored.data)
    except ValidationError:
        return None


def _holder(objects: Objects, key: str) -> Owner | None:
    """Who has a lease now; None: nobody, or unknown."""
    try:
        record = _record(objects.read(key))
    except (NotStored, StoreRefused):
        return None
    return None if record is None or record.free else record.owner
