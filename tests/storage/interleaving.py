"""A store on a local disk in which something else happens before any one of its operations."""

from collections.abc import Callable, Sequence
from pathlib import Path

from storage import Store
from storage.backends.local import LocalDisk


class Interleaved(LocalDisk):
    """Calls `before(n)` ahead of its n-th operation; a removal of many is an operation for each."""

    def __init__(self, root: Path, before: Callable[[int], None]) -> None:
        super().__init__(root, fsync=lambda _: None)
        self.operations = 0
        self._before = before

    def _next(self) -> None:
        number, self.operations = self.operations, self.operations + 1
        self._before(number)

    def names(self, prefix: str) -> list[str]:
        self._next()
        return super().names(prefix)

    def read(self, key: str) -> bytes:
        self._next()
        return super().read(key)

    def create(self, key: str, data: bytes) -> None:
        self._next()
        super().create(key, data)

    def replace(self, key: str, data: bytes) -> None:
        self._next()
        super().replace(key, data)

    def remove(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._next()
            super().remove([key])


def interleaved(root: Path, before: Callable[[int], None]) -> Store:
    """A store over such a disk."""
    return Store(root, Interleaved(root, before))


def once(at: int, act: Callable[[], None]) -> Callable[[int], None]:
    """`act`, ahead of operation `at`."""
    return lambda number: act() if number == at else None


def operations_of(root: Path, work: Callable[[Store], object]) -> int:
    """How many operations `work` takes."""
    store = interleaved(root, lambda _: None)
    work(store)
    backend = store.backend
    assert isinstance(backend, Interleaved)
    return backend.operations
