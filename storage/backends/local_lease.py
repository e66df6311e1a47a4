"""The lease on a local disk: a POSIX record lock, which the kernel frees when its owner dies.

`lockf` rather than `flock`: a `flock` is shared with forked children and outlives a killed parent
for as long as they live. The price: a POSIX lock belongs to the process, and closing *any*
descriptor of the file drops it. So the lock file is opened for nothing but locking, and the owner's
name stands in a second file.
"""

import fcntl
import os
import time
from pathlib import Path

from pydantic import ValidationError

from schemas.errors import RunLocked, StoreRefused
from storage.backends.lease import Owner, locked
from storage.backends.process import has_died

NAMING_TIMEOUT_S = 2.0
"""How long a process that finds the lock taken waits for its holder to have written its name."""
_NAMING_STEP_S = 0.01


class LocalLease:
    """A held lock file and the record beside it."""

    def __init__(
        self, descriptor: int, record: Path, owner: Owner, took_over: Owner | None
    ) -> None:
        self._descriptor: int | None = descriptor
        self._record = record
        self.owner = owner
        self.took_over = took_over

    def check(self) -> None:
        """See `Lease.check`: nobody takes a lock over while this process lives."""

    def release(self) -> None:
        """Remove the record, then unlock. The lock file stays: removing it would race."""
        if self._descriptor is None:
            return
        self._record.unlink(missing_ok=True)
        os.close(self._descriptor)
        self._descriptor = None


def acquire(lock: Path, record: Path, what: str, owner: Owner) -> LocalLease:
    """Lock `lock` for `owner` and say so in `record`; `what` names the leased thing in errors.

    Raises:
        RunLocked: a live process holds it, this one included.
        StoreRefused: the lock file cannot be made.
    """
    before = _read(record)
    if before is not None and before.is_same_process(owner):
        raise locked(what, before)
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise StoreRefused(f"{lock}: cannot take the lease: {error.strerror}") from error
    try:
        _lock(descriptor, record, what)
    except OSError as error:
        os.close(descriptor)
        raise StoreRefused(f"{lock}: cannot take the lease: {error.strerror}") from error
    except RunLocked:
        os.close(descriptor)
        raise
    took_over = _read(record)
    try:
        record.write_text(owner.model_dump_json())
    except OSError as error:
        os.close(descriptor)
        raise StoreRefused(f"{record}: cannot be written: {error.strerror}") from error
    return LocalLease(descriptor, record, owner, took_over)


def _lock(descriptor: int, record: Path, what: str) -> None:
    """Lock `descriptor`, or say who has.

    Who took the lock a moment ago may not have written its name yet, and a dead owner's may still
    stand there: then this waits for the name, or for the lock.

    Raises:
        RunLocked: a live process holds it.
        OSError: it cannot be locked at all.
    """
    until = time.monotonic() + NAMING_TIMEOUT_S
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except (BlockingIOError, PermissionError) as error:
            holder = _read(record)
            if (holder is not None and not has_died(holder)) or time.monotonic() > until:
                raise locked(what, holder) from error
        time.sleep(_NAMING_STEP_S)


def _read(record: Path) -> Owner | None:
    """The owner on record. An unreadable record names nobody: the lock itself decides."""
    try:
        return Owner.model_validate_json(record.read_bytes())
    except (OSError, ValidationError):
        return None
