"""A store on a local disk, with its own durability.

A value is written to a temporary file in its folder, fsynced, linked to its name (which fails if
the name is taken: the optimistic lock), the temporary name removed and the folder fsynced. A folder
that had to be made is fsynced into its parent first.
"""

import errno
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from schemas.errors import StoreRefused
from storage.backends import AlreadyStored, NotStored
from storage.backends.lease import Owner
from storage.backends.local_lease import LocalLease, acquire
from storage.layout import TEMPORARY_PREFIX


class LocalDisk:
    """A folder as a `SegmentStore`.

    Args:
        root: the store's folder; made when first written to.
        fsync: flushes a descriptor; an argument so that tests can count.
    """

    def __init__(self, root: Path, *, fsync: Callable[[int], None] = os.fsync) -> None:
        self.root = root
        self._fsync = fsync
        self._settled: set[Path] = set()

    def names(self, prefix: str) -> list[str]:
        """See `SegmentStore.names`."""
        return [n for n in self._entries(prefix, files=True) if not n.startswith(TEMPORARY_PREFIX)]

    def folders(self, prefix: str) -> list[str]:
        """See `SegmentStore.folders`."""
        return self._entries(prefix, files=False)

    def leftovers(self, prefix: str) -> list[str]:
        """See `SegmentStore.leftovers`."""
        return [n for n in self._entries(prefix, files=True) if n.startswith(TEMPORARY_PREFIX)]

    def read(self, key: str) -> bytes:
        """See `SegmentStore.read`."""
        path = self.root / key
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotStored(key) from error
        except OSError as error:
            raise StoreRefused(f"{path}: cannot be read: {error.strerror}") from error

    def create(self, key: str, data: bytes) -> None:
        """See `SegmentStore.create`."""
        path = self.root / key
        with self._temporary(path, data) as temporary:
            try:
                os.link(temporary, path)
            except FileExistsError as error:
                raise AlreadyStored(key) from error
            except OSError as error:
                if error.errno in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP):
                    raise StoreRefused(
                        f"{path}: this file system has no hard links, which the log needs",
                        hint="keep the store on another file system (--store or REFOLD_STORE)",
                    ) from error
                raise
        self._sync_folder(path.parent)

    def replace(self, key: str, data: bytes) -> None:
        """See `SegmentStore.replace`."""
        path = self.root / key
        with self._temporary(path, data) as temporary:
            temporary.replace(path)
        self._sync_folder(path.parent)

    def move(self, key: str, new_key: str) -> None:
        """See `SegmentStore.move`."""
        old, new = self.root / key, self.root / new_key
        try:
            self._settle(new.parent)
            old.rename(new)
        except FileNotFoundError as error:
            raise NotStored(key) from error
        except OSError as error:
            raise StoreRefused(f"{old}: cannot be moved: {error.strerror}") from error
        self._sync_folder(new.parent)
        self._sync_folder(old.parent)

    def remove(self, keys: Sequence[str]) -> None:
        """See `SegmentStore.remove`."""
        paths = [self.root / key for key in keys]
        for path in paths:
            try:
                path.unlink(missing_ok=True)
            except NotADirectoryError:
                continue
            except OSError as error:
                raise StoreRefused(f"{path}: cannot be removed: {error.strerror}") from error
        for folder in {path.parent for path in paths}:
            if folder.is_dir():
                self._sync_folder(folder)

    def acquire(self, key: str, owner: Owner) -> LocalLease:
        """See `SegmentStore.acquire`."""
        path = self.root / key
        try:
            self._settle(path.parent)
        except OSError as error:
            raise StoreRefused(f"{path.parent}: cannot be made: {error.strerror}") from error
        return acquire(
            path.with_name(f"{path.name}.lock"),
            path.with_name(f"{path.name}.json"),
            f"run {path.name}",
            owner,
        )

    def _entries(self, prefix: str, *, files: bool) -> list[str]:
        folder = self.root / prefix
        try:
            with os.scandir(folder) as entries:
                return sorted(e.name for e in entries if e.is_dir() != files)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise StoreRefused(f"{folder}: cannot be listed: {error.strerror}") from error

    @contextmanager
    def _temporary(self, path: Path, data: bytes) -> Iterator[Path]:
        """A fsynced file in `path`'s folder that holds `data`; gone afterwards."""
        temporary = path.with_name(f"{TEMPORARY_PREFIX}{path.name}-{secrets.token_hex(8)}")
        try:
            self._settle(path.parent)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            try:
                _write_all(descriptor, data)
                self._fsync(descriptor)
            finally:
                os.close(descriptor)
            yield temporary
        except OSError as error:
            raise StoreRefused(
                f"{path}: cannot be written: {error.strerror}; nothing was stored"
            ) from error
        finally:
            with suppress(OSError):  # what cannot be removed is a leftover, not the error to tell
                temporary.unlink()

    def _settle(self, folder: Path) -> None:
        """Make `folder` durable: it and each folder above it, up to the root, exists on disk.

        Done once per folder and process, also for a folder that is there already: whoever made it
        may not have flushed its parent yet.
        """
        if folder in self._settled:
            return
        if folder == self.root:
            self._make_root(folder)
        else:
            self._settle(folder.parent)
            folder.mkdir(exist_ok=True)
            self._sync_folder(folder.parent)
        self._settled.add(folder)

    def _make_root(self, folder: Path) -> None:
        if folder.is_dir():
            return
        self._make_root(folder.parent)
        folder.mkdir(exist_ok=True)
        self._sync_folder(folder.parent)

    def _sync_folder(self, folder: Path) -> None:
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                self._fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise StoreRefused(
                f"{folder}: cannot be flushed: {error.strerror}; what was just written may be lost"
            ) from error


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
