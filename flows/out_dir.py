"""The folder a search writes its artefacts to: proved writable, and held, before it begins."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from schemas.errors import EnvironmentMissing, RefoldError, UserError

LOCK = ".refold.lock"
"""Stands in an out-dir while a search that will write there runs."""
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO}


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Makes `folder`, proves that files can be written there, and keeps other searches out.

    Raises:
        UserError: it cannot be made or written, its name is not text, or another search has it.
        EnvironmentMissing: the disk is full or read-only.
    """
    try:
        str(folder).encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"--out-dir {str(folder)!r} is not text in this locale's encoding"
        ) from error
    lock = folder / LOCK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = _locked(lock)
    except OSError as error:
        raise cannot_write(folder, error) from error
    try:
        yield
    finally:
        # Removed while still locked: whoever waits for this file sees that it is gone.
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def _locked(lock: Path) -> int:
    """A descriptor of `lock`, which this process holds and which holds its number.

    A record lock, not `flock`: children of a killed search must not keep its folder.
    """
    while True:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            try:
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError) as error:
                raise _taken(lock) from error
            if _is_still(lock, descriptor):
                os.truncate(descriptor, 0)
                os.write(descriptor, f"{os.getpid()}\n".encode())
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # the holder before us removed it in between: try the new one


def _is_still(lock: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(lock.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _taken(lock: Path) -> UserError:
    return UserError(
        f"--out-dir {lock.parent}: another search is writing there",
        hint="choose another --out-dir, or wait until that search ends",
    )


def is_disk_trouble(error: OSError) -> bool:
    """The disk is full, over a limit, read-only or broken: nothing another name would cure."""
    return error.errno in _DISK


def cannot_write(path: Path, error: OSError) -> RefoldError:
    """The error for `path`: the environment's when the disk is at fault, else the user's."""
    message = f"{path}: cannot be written: {error.strerror}"
    if is_disk_trouble(error):
        return EnvironmentMissing(message, hint="make room, or choose another disk")
    return UserError(message, hint="choose another folder with --out-dir")
