"""A store in an object store (S3, Google Cloud Storage, Azure Blob Storage).

A value is one object, written by one request that the service carries out whole or not at all, so
B1 and B4 are the service's. `create` is a conditional request (B2). An answered request is durable
by the service's word (B3). Listings show what was answered before them: all three services are
strongly consistent. There is no rename: `move` copies, then deletes, and a process killed between
the two leaves both.
"""

from collections.abc import Callable, Mapping, Sequence

from storage.backends.lease import Owner
from storage.backends.object_client import Patience
from storage.backends.object_lease import ObjectLease, Pace, acquire
from storage.backends.objects import Objects
from storage.backends.store_url import StoreUrl
from storage.layout import TEMPORARY_PREFIX


def _silent(_: str) -> None: ...


class ObjectStore:
    """A folder of a bucket as a `SegmentStore`.

    Args:
        url: the bucket and the folder in it.
        env: names the endpoint; credentials are read by the client itself.
        say: told, in one line, why `acquire` waits.
        patience: how long a request may take.
        pace: how often the leases taken here are renewed, and when they run out.

    Raises:
        EnvironmentMissing: `obstore` is not installed.
    """

    def __init__(
        self,
        url: StoreUrl,
        env: Mapping[str, str],
        *,
        say: Callable[[str], None] = _silent,
        patience: Patience | None = None,
        pace: Pace | None = None,
    ) -> None:
        self._objects = Objects(url, env, patience or Patience())
        self._pace = pace or Pace()
        self._say = say

    def names(self, prefix: str) -> list[str]:
        """See `SegmentStore.names`."""
        objects, _ = self._objects.below(prefix)
        return [name for name in objects if not name.startswith(TEMPORARY_PREFIX)]

    def folders(self, prefix: str) -> list[str]:
        """See `SegmentStore.folders`."""
        return self._objects.below(prefix)[1]

    def leftovers(self, prefix: str) -> list[str]:
        """See `SegmentStore.leftovers`: none but those that a copied local store brought along."""
        objects, _ = self._objects.below(prefix)
        return [name for name in objects if name.startswith(TEMPORARY_PREFIX)]

    def read(self, key: str) -> bytes:
        """See `SegmentStore.read`."""
        return self._objects.read(key).data

    def create(self, key: str, data: bytes) -> None:
        """See `SegmentStore.create`."""
        self._objects.create(key, data)

    def replace(self, key: str, data: bytes) -> None:
        """See `SegmentStore.replace`."""
        self._objects.overwrite(key, data)

    def move(self, key: str, new_key: str) -> None:
        """See `SegmentStore.move`."""
        self._objects.copy(key, new_key)
        self._objects.remove([key])

    def remove(self, keys: Sequence[str]) -> None:
        """See `SegmentStore.remove`."""
        self._objects.remove(keys)

    def acquire(self, key: str, owner: Owner) -> ObjectLease:
        """See `SegmentStore.acquire`."""
        return acquire(
            self._objects, f"{key}.json", owner, pace=self._pace, say=self._say, run=_run_of(key)
        )


def _run_of(key: str) -> str:
    return f"run {key.rpartition('/')[2]}"
