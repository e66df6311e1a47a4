"""The one byte form of a value: what is hashed, stored and compared.

JSON with sorted keys, no spaces, UTF-8, no NaN or infinity; a float is its shortest decimal that
reads back to the same double (`repr`), so equal values have equal bytes on every machine.
"""

import hashlib
import json
from typing import Any

from schemas.errors import LogError


def canonical(value: Any) -> str:
    """`value`, made of JSON types, in canonical JSON.

    Raises:
        LogError: a number is not finite, a key is not a string, or a text is not valid Unicode.
    """
    try:
        text = json.dumps(
            value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        text.encode()
    except (ValueError, TypeError) as error:
        raise LogError(f"a value cannot be recorded as JSON: {error}") from error
    return text


def sha256_hex(data: bytes) -> str:
    """SHA-256 of `data`, 64 hex digits."""
    return hashlib.sha256(data).hexdigest()
