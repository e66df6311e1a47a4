"""What the log asks of a place to keep bytes; one module per kind of place.

A backend keeps values under keys (paths with forward slashes) and promises:

B1 a key that `create` made holds all of its bytes, or does not exist: never a part of them.
B2 of several `create` calls for one key exactly one succeeds; the others write nothing.
B3 when `create`, `replace`, `move` or `remove` returns, its effect survives a power cut.
B4 a writer killed at any instant leaves at most something that `leftovers` lists.
"""

from collections.abc import Sequence
from typing import Protocol

from storage.backends.lease import Lease, Owner


class SegmentStore(Protocol):
    """Durable, create-if-absent storage of small immutable values."""

    def names(self, prefix: str) -> list[str]:
        """Names of the values directly below `prefix`, sorted, without leftovers."""

    def folders(self, prefix: str) -> list[str]:
        """Names of the folders directly below `prefix`, sorted."""

    def read(self, key: str) -> bytes:
        """The value under `key`.

        Raises:
            NotStored: there is none.
            StoreRefused: it cannot be read.
        """

    def create(self, key: str, data: bytes) -> None:
        """Store `data` under `key`, durably.

        Raises:
            AlreadyStored: the key is taken; nothing was written.
            StoreRefused: it cannot be written (disk full, no permission); the key is not taken,
                unless the message says that it may be: a server's answer was lost.
        """

    def replace(self, key: str, data: bytes) -> None:
        """Store `data` under `key`, durably; readers see the old value or the new one.

        Raises:
            StoreRefused: it cannot be written; the old value stands.
        """

    def move(self, key: str, new_key: str) -> None:
        """Rename, durably. Only the holder of a run's lease moves that run's values.

        Raises:
            NotStored: there is nothing under `key`.
        """

    def remove(self, keys: Sequence[str]) -> None:
        """Delete what is under `keys`, durably; each key is free to be created again.

        Removing what is not there is no error, so removing twice is the same as once. A reader at
        the same time gets the whole value or `NotStored`.

        Raises:
            StoreRefused: one cannot be removed; any of them may still be there.
        """

    def leftovers(self, prefix: str) -> list[str]:
        """Names directly below `prefix` of what killed writers left behind, sorted."""

    def acquire(self, key: str, owner: Owner) -> Lease:
        """Take the exclusive lease `key` for `owner`, over from a dead owner if need be.

        Raises:
            RunLocked: a live process holds it; the message says which, and since when.
        """


class NotStored(LookupError):
    """There is nothing under this key."""


class AlreadyStored(Exception):
    """The key is taken."""
