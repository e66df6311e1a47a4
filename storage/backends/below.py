"""A folder of a store as a store of its own."""

from collections.abc import Sequence

from storage.backends import SegmentStore
from storage.backends.lease import Lease, Owner


class Below:
    """What lies below `folder` of another `SegmentStore`, with that one's promises."""

    def __init__(self, backend: SegmentStore, folder: str) -> None:
        self._backend = backend
        self._folder = folder

    def names(self, prefix: str) -> list[str]:
        """See `SegmentStore.names`."""
        return self._backend.names(self._key(prefix))

    def folders(self, prefix: str) -> list[str]:
        """See `SegmentStore.folders`."""
        return self._backend.folders(self._key(prefix))

    def leftovers(self, prefix: str) -> list[str]:
        """See `SegmentStore.leftovers`."""
        return self._backend.leftovers(self._key(prefix))

    def read(self, key: str) -> bytes:
        """See `SegmentStore.read`."""
        return self._backend.read(self._key(key))

    def create(self, key: str, data: bytes) -> None:
        """See `SegmentStore.create`."""
        self._backend.create(self._key(key), data)

    def replace(self, key: str, data: bytes) -> None:
        """See `SegmentStore.replace`."""
        self._backend.replace(self._key(key), data)

    def move(self, key: str, new_key: str) -> None:
        """See `SegmentStore.move`."""
        self._backend.move(self._key(key), self._key(new_key))

    def remove(self, keys: Sequence[str]) -> None:
        """See `SegmentStore.remove`."""
        self._backend.remove([self._key(key) for key in keys])

    def acquire(self, key: str, owner: Owner) -> Lease:
        """See `SegmentStore.acquire`."""
        return self._backend.acquire(self._key(key), owner)

    def _key(self, key: str) -> str:
        return f"{self._folder}/{key}"
