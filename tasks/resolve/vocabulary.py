"""How many entries a workload's vocabulary has: what the file says, else its tokenizer's."""

from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Any, Final

from schemas.errors import WorkloadError
from tasks.resolve.settings import Settings
from tasks.resolve.shipped import shipped_table

_LARGEST: Final = 10**8
_BY_TYPE: Final = {"GPT2BPETokenizer": 50257}
"""Tokenizer types that fix the vocabulary by themselves (GPT-2's merges and its end of text)."""


def vocabulary(settings: Settings) -> int:
    """Entries before padding: `vocab_size`, `padded_vocab_size`, or the tokenizer's.

    Raises WorkloadError saying which key to set when none of them says. There is no default.
    """
    for key in ("vocab_size", "padded_vocab_size"):
        stated = settings.whole(key, maximum=_LARGEST)
        if stated is not None:
            return stated
    model = settings.text("tokenizer_model")
    if model is not None:
        known = tokenizer_vocabulary(model)
        if known is not None:
            return known
        raise settings.error("tokenizer_model", f"unknown tokenizer {model!r:.80}; set vocab_size")
    kind = settings.text("tokenizer_type")
    if kind in _BY_TYPE:
        return _BY_TYPE[str(kind)]
    raise WorkloadError(f"{settings.label}: no vocabulary: set vocab_size (or tokenizer_model)")


def tokenizer_vocabulary(model: str) -> int | None:
    """The vocabulary of the tokenizer `model` (`organisation/name` or a path); None if unknown."""
    name = model.strip().rstrip("/").lower()
    local = name.startswith(("/", ".", "~")) or name.count("/") > 1
    last = PurePosixPath(name).name
    for entry in _table():
        for pattern in entry["models"]:
            wanted, candidate = pattern, name
            if local:
                wanted, candidate = PurePosixPath(pattern).name, last
            if fnmatchcase(candidate, wanted):
                size: int = entry["vocab_size"]
                return size
    return None


def _table() -> list[dict[str, Any]]:
    """The shipped table of tokenizers."""
    table: list[dict[str, Any]] = shipped_table("tokenizers.yaml")["tokenizers"]
    return table
