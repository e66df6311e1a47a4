"""Secrets that must never be written: API keys, as the caller knows them."""

import json
from collections.abc import Collection

from schemas.errors import LogError

MIN_SECRET_LENGTH = 8
"""Shorter strings cannot be keys ("dummy" is what local endpoints take) and would match words."""


class Secrets:
    """Strings to look for in what is about to be written, plain and as JSON spells them."""

    def __init__(self, secrets: Collection[str]) -> None:
        long_enough = {s for s in secrets if len(s) >= MIN_SECRET_LENGTH}
        escaped = {
            json.dumps(s, ensure_ascii=ascii)[1:-1] for s in long_enough for ascii in (True, False)
        }
        self._needles = tuple(sorted(s.encode() for s in long_enough | escaped))

    def refuse(self, data: bytes, what: str) -> None:
        """Nothing, if `data` holds none of them. The message never repeats the secret.

        Raises:
            LogError: it holds one; `what` says of which value.
        """
        if any(needle in data for needle in self._needles):
            raise LogError(
                f"{what} holds a configured secret; nothing was written",
                hint="keep API keys in the environment or .env, and out of prompts and notes",
            )
