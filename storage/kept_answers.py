"""What steps of a search answered before, by the key of everything that could change the answer.

For steps that cost more to take again than to look up; scores have a cache of their own. Written
durably, create-if-absent; an entry that is not whole is a miss, said so in a warning, and
overwritten by the next answer. Deleting any of it loses time and nothing else.
"""

from typing import Any, NamedTuple

from pydantic import ValidationError

from schemas.errors import LogError
from schemas.model import FrozenModel
from storage.backends import AlreadyStored, NotStored, SegmentStore
from storage.canonical import canonical, sha256_hex
from storage.layout import ANSWERS


class KeptAnswer(NamedTuple):
    """The JSON value of a hit, else None; and what was odd, if anything."""

    value: Any
    warning: str | None = None


class KeptAnswers:
    """A content-addressed cache in a store."""

    def __init__(self, backend: SegmentStore) -> None:
        self._backend = backend

    def find(self, step: str, key: str) -> KeptAnswer:
        """What `step` answered under `key`, 64 hex digits; JSON null stands for no answer.

        Raises:
            LogError: the store cannot be read.
        """
        path = _path(step, key)
        try:
            data = self._backend.read(path)
        except NotStored:
            return KeptAnswer(None)
        value = _value(data, step, key)
        if value is None:
            return KeptAnswer(None, f"cached answer {path} is damaged; asking again")
        return KeptAnswer(value)

    def put(self, step: str, key: str, value: Any) -> str | None:
        """Keep `value`, made of JSON types. Returns a warning, or None.

        The first answer kept stands: a second, different one is reported and not stored. A damaged
        entry is overwritten.

        Raises:
            LogError: it cannot be written.
        """
        path, data = _path(step, key), _bytes(step, key, value)
        try:
            self._backend.create(path, data)
        except AlreadyStored:
            there = self._backend.read(path)
            if _value(there, step, key) is None:
                self._backend.replace(path, data)
                return f"cached answer {path} was damaged; overwritten"
            if there != data:
                return f"cached answer {path} differs from the new one; the first one is kept"
        return None


def _path(step: str, key: str) -> str:
    return f"{ANSWERS}/{step}/{key[:2]}/{key}.json"


class _Entry(FrozenModel):
    step: str
    key: str
    value: Any
    sha256: str


def _bytes(step: str, key: str, value: Any) -> bytes:
    entry = {"step": step, "key": key, "value": value, "sha256": _digest(value)}
    return canonical(entry).encode()


def _value(data: bytes, step: str, key: str) -> Any:
    """The value in a file; None when the file is not whole or answers something else."""
    try:
        entry = _Entry.model_validate_json(data)
        whole = (entry.step, entry.key, entry.sha256) == (step, key, _digest(entry.value))
    except (ValidationError, LogError):
        return None
    return entry.value if whole else None


def _digest(value: Any) -> str:
    return sha256_hex(canonical(value).encode())
