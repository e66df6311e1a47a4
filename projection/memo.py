"""Bounded memos: what a search asks again is kept, what a full enumeration passes by is not."""

from collections.abc import Hashable
from typing import Final, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MEMO_LIMIT: Final = 8192
"""Entries a memo holds before it is emptied: some ten megabytes of the largest kind."""


def remember(known: dict[K, V], key: K, value: V) -> V:
    """Keep `value` under `key`, emptying a memo that is full, and return it."""
    if len(known) >= MEMO_LIMIT:
        known.clear()
    known[key] = value
    return value
