"""The one byte form of a value: what is hashed, stored and compared.

JSON with sorted keys, no spaces, UTF-8, no NaN or infinity; a float is its shortest decimal that
reads back to the same double (`repr`), so equal values have equal bytes on every machine.

Python's `json` defines the form. orjson is ten times as fast and spells only floats below 1e-4
otherwise: its text is taken where that can be put right, and `json` asked where there is any doubt.
"""

import hashlib
import json
import re
from typing import Any

import orjson

from schemas.errors import LogError

_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_LONGEST_FLOAT = len("-2.2250738585072014e-308")
_FLOAT = re.compile(rb"-?\d+(?:\.\d+)?(?:e-\d+)?")


def canonical(value: Any) -> str:
    """`value`, made of JSON types, in canonical JSON.

    Raises:
        LogError: a number is not finite, a key is not a string, or a text is not valid Unicode.
    """
    try:
        text = _with_repr_floats(orjson.dumps(value, option=_OPTIONS))
        # Differs where orjson wrote NaN as null, or a type that JSON has not, and where a string
        # was taken for a float.
        if orjson.loads(text) == value:
            return text.decode()
    except TypeError:
        pass
    return _by_json(value)


def is_canonical(text: str, value: Any) -> bool:
    """Whether JSON `text` is the canonical form of `value`, which is `parsed(text)`."""
    try:
        if _with_repr_floats(orjson.dumps(value, option=_OPTIONS)) == text.encode():
            return True
    except TypeError:
        pass
    try:
        return _by_json(json.loads(text)) == text
    except (LogError, ValueError):
        return False


def parsed(text: str) -> Any:
    """The value that `text` spells in JSON.

    Raises:
        ValueError: it is not JSON.
    """
    return orjson.loads(text)


def sha256_hex(data: bytes) -> str:
    """SHA-256 of `data`, 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def _by_json(value: Any) -> str:
    try:
        text = json.dumps(
            value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        text.encode()
    except (ValueError, TypeError) as error:
        raise LogError(f"a value cannot be recorded as JSON: {error}") from error
    return text


def _with_repr_floats(text: bytes) -> bytes:
    """orjson's `text` with 0.00001 as 1e-05 and 1e-7 as 1e-07; both may also be met in a string."""
    pieces, done = [], 0
    for place in _small_floats(text):
        first = max(place - _LONGEST_FLOAT, done)
        start = 1 + max(text.rfind(mark, first, place) for mark in (b":", b",", b"["))
        number = _FLOAT.match(text, max(start, first))
        if number is not None and number.end() > place:
            pieces += [text[done : number.start()], repr(float(number[0])).encode()]
            done = number.end()
    return b"".join([*pieces, text[done:]]) if pieces else text


def _small_floats(text: bytes) -> list[int]:
    """Where `text` has 0.0000 or e-, the marks of the floats that orjson spells otherwise."""
    places = []
    place = text.find(b"-", 1)
    while place >= 0:  # a search for one byte is much faster than one for two
        if text[place - 1] == ord("e"):
            places.append(place - 1)
        place = text.find(b"-", place + 1)
    place = text.find(b"0.0000")
    while place >= 0:
        places.append(place)
        place = text.find(b"0.0000", place + 1)
    return sorted(places)
