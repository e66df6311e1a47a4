"""The flat settings of one workload, read with their types; a wrong one names its place."""

import difflib
import re
from collections.abc import Sequence
from typing import Any, Final

from schemas.errors import WorkloadError
from tasks.resolve.environment import from_variables
from tasks.resolve.merging import Document, Origin

_LARGEST: Final = 10**12
"""No size or count of a training job is near this."""
_LEAST_HIDDEN: Final = 5
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_TRUE: Final = frozenset({"true", "yes", "on", "1"})
_FALSE: Final = frozenset({"false", "no", "off", "0"})


class Settings:
    """Effective settings over framework defaults; None and the text "null" both mean unset."""

    def __init__(self, document: Document, label: str) -> None:
        self._document = document
        self.label = label

    def raw(self, key: str) -> Any:
        """The value as it stands, None when unset."""
        value = self._document.values.get(key)
        return None if isinstance(value, str) and value.strip() == "null" else value

    def where(self, key: str) -> str:
        """Where `key` was set, for a message."""
        return str(self._document.origins.get((key,), Origin(self.label, key)))

    def error(self, key: str, problem: str) -> WorkloadError:
        """The error that says `problem` at the place that set `key`.

        A value that came out of an environment variable may be a secret; the variable is named.
        """
        variables = self._variables(key)
        if variables:
            for spelling in _spellings(self.raw(key)):
                problem = problem.replace(spelling, from_variables(variables))
        return WorkloadError(f"{self.where(key)}: {problem}")

    def _variables(self, key: str) -> tuple[str, ...]:
        origin = self._document.origins.get((key,))
        return origin.variables if origin is not None else ()

    def _shown(self, key: str, value: Any) -> str:
        """`value` of `key` as a message quotes it: cut short, or the variable it came from."""
        variables = self._variables(key)
        return from_variables(variables) if variables else _shown(value)

    def whole(self, key: str, *, minimum: int = 1, maximum: int = _LARGEST) -> int | None:
        """An integer in the range, None when unset; integral floats and digits in text count."""
        value = self.raw(key)
        if value is None:
            return None
        number = _as_integer(value)
        if number is None:
            if isinstance(value, bool):
                problem = (
                    f"expected a whole number, got {str(value).lower()}"
                    " (YAML reads on, off, yes and no as true and false)"
                )
            else:
                problem = f"expected a whole number, got {self._shown(key, value)}"
            raise self.error(key, problem)
        if not minimum <= number <= maximum:
            bound = f"at least {minimum}" if number < minimum else f"at most {maximum}"
            raise self.error(key, f"expected {bound}, got {self._shown(key, number)}")
        return number

    def size(self, key: str, *, minimum: int = 1, maximum: int = _LARGEST) -> int:
        """An integer in the range that must be set."""
        value = self.whole(key, minimum=minimum, maximum=maximum)
        if value is None:
            raise self.error(key, "must be set to a whole number")
        return value

    def flag(self, key: str) -> bool:
        """A boolean; unset is false, and 0, 1 and the words of YAML are understood."""
        value = self.raw(key)
        if value is None:
            return False
        if isinstance(value, bool):
            return value
        word = str(value).strip().lower() if isinstance(value, str | int) else ""
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
        raise self.error(key, f"expected true or false, got {self._shown(key, value)}")

    def word(self, key: str, allowed: Sequence[str]) -> str | None:
        """One of `allowed` (in any case), None when unset or switched off with `false`."""
        value = self.raw(key)
        if value is None or value is False:
            return None
        for choice in allowed:
            if isinstance(value, str) and value.strip().lower() == choice.lower():
                return choice
        near = difflib.get_close_matches(str(value)[:80], allowed, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise self.error(
            key, f"expected one of {', '.join(allowed)}, got {self._shown(key, value)}{hint}"
        )

    def text(self, key: str) -> str | None:
        """Text, None when unset."""
        value = self.raw(key)
        if value is None or isinstance(value, str):
            return value
        raise self.error(key, f"expected text, got {self._shown(key, value)}")

    def whole_list(self, key: str, *, minimum: int = 0) -> tuple[int, ...] | None:
        """Whole numbers, as a list or as text with commas; None when unset or empty."""
        value = self.raw(key)
        if value is None:
            return None
        items = value.split(",") if isinstance(value, str) else value
        if isinstance(items, int) and not isinstance(items, bool):
            items = [items]
        if not isinstance(items, list):
            raise self.error(key, f"expected whole numbers, got {self._shown(key, value)}")
        numbers = []
        for item in items:
            if isinstance(item, str) and not item.strip():
                continue
            number = _as_integer(item)
            if number is None or not minimum <= number <= _LARGEST:
                raise self.error(
                    key, f"expected whole numbers from {minimum}, got {self._shown(key, item)}"
                )
            numbers.append(number)
        return tuple(numbers) or None

    def word_list(self, key: str) -> tuple[str, ...]:
        """Words, as a list or as text with commas or spaces; empty when unset."""
        value = self.raw(key)
        if value is None:
            return ()
        items = value.replace(",", " ").split() if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            raise self.error(key, f"expected a list of words, got {self._shown(key, value)}")
        return tuple(items)


def _as_integer(value: Any) -> int | None:
    """The integer that `value` spells, or None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= _LARGEST else None
    if isinstance(value, str) and _INTEGER.fullmatch(value.strip()):
        return int(value)
    return None


def _shown(value: Any) -> str:
    """`value` as a message quotes it, cut short."""
    if isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, dict):
        text = "a mapping"
    elif isinstance(value, list):
        text = "a list"
    else:
        text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _spellings(value: Any) -> tuple[str, ...]:
    """The ways a message may hold `value`, or an item of it; short ones could be other words."""
    items = value if isinstance(value, list) else [value]
    texts = {str(item) for item in items if not isinstance(item, bool)}
    texts |= {text.strip() for text in texts} | {text.strip().lower() for text in texts}
    long = sorted((text for text in texts if len(text) >= _LEAST_HIDDEN), key=len, reverse=True)
    return (*(repr(text) for text in long), *long)
