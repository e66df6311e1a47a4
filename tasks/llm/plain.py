"""What a model sent as values that can be recorded: Unicode, finite numbers, bounded depth."""

import math
from typing import Any

DEEPEST = 50
"""Levels of a value that are looked at; below them there is nothing a model was asked for."""


def plain_text(text: str) -> str:
    """`text` with a question mark for what is no Unicode, such as half a surrogate pair."""
    return text.encode("utf-8", "replace").decode("utf-8")


def plain(value: Any, deepest: int = DEEPEST) -> Any:
    """`value` in JSON types that have a canonical form; what has none is said in words."""
    if isinstance(value, str):
        return plain_text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else "(a number too large)"
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if deepest <= 0:
        return "(too deep)"
    if isinstance(value, dict):
        return {plain_text(str(key)): plain(item, deepest - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, deepest - 1) for item in value]
    return plain_text(str(type(value).__name__))
