"""Bounded memos: what a search asks again is kept, what a full enumeration passes by is not."""

from collections.abc import Hashable
from typing import Final, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

MEMO_LIMIT: Final = 8192
"""Entries a memo holds before it is emptied: some ten megabytes where one is a kilobyte."""
LARGE_LIMIT: Final = 2048
"""The same where one is tens of kilobytes (a report of 16 ranks takes 34): some 70 MB."""


def remember(known: dict[K, V], key: K, value: V, limit: int = MEMO_LIMIT) -> V:
    """Keep `value` under `key`, emptying a memo that has `limit` entries, and return it."""
    if len(known) >= limit:
        known.clear()
    known[key] = value
    return value
