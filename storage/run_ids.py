"""Names of runs: sortable by start time, safe in a path and a URL, never the same twice."""

import base64
import re
import secrets
from datetime import UTC, datetime

from schemas.errors import RunNotFound

_RUN_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,79}")
_ENTROPY_BYTES = 5


def run_id(started_at: datetime, entropy: bytes) -> str:
    """`20260102t030405-678901-<8 letters and digits>`: UTC to the microsecond, then `entropy`.

    Lexical order is time order. `entropy` is 5 bytes, 2^40 values: two runs started in the same
    microsecond differ by it.
    """
    if len(entropy) != _ENTROPY_BYTES:
        raise ValueError(f"entropy must be {_ENTROPY_BYTES} bytes, not {len(entropy)}")
    stamp = started_at.astimezone(UTC).strftime("%Y%m%dt%H%M%S-%f")
    return f"{stamp}-{base64.b32encode(entropy).decode().lower()}"


def fresh_run_id() -> str:
    """A run id for now: the edge where clock and randomness enter."""
    return run_id(now_utc(), secrets.token_bytes(_ENTROPY_BYTES))


def now_utc() -> datetime:
    """The time, UTC: the edge where the clock enters the log."""
    return datetime.now(UTC)


def checked_run_id(text: str) -> str:
    """`text` if it can be a run id.

    Raises:
        RunNotFound: it cannot (and so is never used in a path).
    """
    if not _RUN_ID.fullmatch(text):
        raise RunNotFound(f"{text!r} is not a run id: those are lower-case letters, digits and '-'")
    return text
