"""Values that compute their hash once: keys of the memos, looked up a dozen times per trial."""

from dataclasses import fields
from typing import Any


class HashedOnce:
    """Base of frozen slotted dataclasses used as keys. Equality stays that of their fields.

    A subclass decorates itself with `@dataclass(frozen=True, slots=True)`, declares
    `__hash__ = HashedOnce.__hash__` and hashes only what hashes by value.
    """

    __slots__ = ("_hash",)
    _hash: int

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            parts = [getattr(self, field.name) for field in fields(self)]  # type: ignore[arg-type]
            object.__setattr__(self, "_hash", hash(tuple(parts)))
            return self._hash

    def __getstate__(self) -> list[Any]:
        return [getattr(self, field.name) for field in fields(self)]  # type: ignore[arg-type]

    def __setstate__(self, state: list[Any]) -> None:
        for field, value in zip(fields(self), state, strict=True):  # type: ignore[arg-type]
            object.__setattr__(self, field.name, value)
