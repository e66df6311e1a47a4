"""Secrets that stand in configuration files: told by their key, and kept out of what is written."""

import re
from collections.abc import Iterator
from typing import Any, Final

REDACTED: Final = "***"
_PART: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+")
_ALWAYS: Final = frozenset(
    {"secret", "secrets", "password", "passwords", "passwd", "credential", "credentials", "apikey"}
)
_KEY_OWNERS: Final = frozenset({"api", "access", "private", "secret", "auth", "license", "ssh"})
_TOKEN_OWNERS: Final = frozenset(
    {"api", "access", "auth", "bearer", "hf", "hub", "wandb", "refresh"}
)
_IN_URL: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_VARIABLE: Final = re.compile(r"\$\{([^:{}]+)")
_LOOKS_SECRET: Final = re.compile(r"\b(sk|hf|ghp|xox[bp])[-_][A-Za-z0-9_-]{8,}")


def is_secret_key(key: str) -> bool:
    """Whether a setting's name says that its value is a secret.

    `tokenizer_model`, `max_tokens` and `eod_token` are not; `token`, `hf_token`, `api_key` are.
    """
    parts = [part.lower() for part in _PART.findall(key)]
    if not parts:
        return False
    last, owner = parts[-1], parts[-2] if len(parts) > 1 else None
    if _ALWAYS.intersection(parts):
        return True
    if last in {"key", "keys"}:
        return owner is None or owner in _KEY_OWNERS
    return last in {"token", "tokens"} and (
        owner in _TOKEN_OWNERS if owner is not None else last == "token"
    )


def redact_text(text: str) -> str:
    """`text` without user names in addresses and without what looks like a provider's key."""
    return _LOOKS_SECRET.sub(REDACTED, _IN_URL.sub(REDACTED, text))


def redact(value: Any) -> Any:
    """A copy of nested settings with every secret replaced by `***`."""
    if isinstance(value, dict):
        return {
            key: REDACTED if is_secret_key(key) and item is not None else redact(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [redact(item) for item in value]
    return redact_text(value) if isinstance(value, str) else value


def secret_paths(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of the settings whose key says they are secret and that have a value."""
    if isinstance(value, dict):
        for key, item in value.items():
            if is_secret_key(key) and item is not None:
                yield (*path, key)
            else:
                yield from secret_paths(item, (*path, key))


def secret_references(
    value: Any, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Path and text of the settings that refer to an environment variable named as a secret."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from secret_references(item, (*path, key))
    elif isinstance(value, str) and any(is_secret_key(name) for name in _VARIABLE.findall(value)):
        yield path, value
