"""Secrets that stand in configuration files: told by their key, and kept out of what is written."""

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

REDACTED: Final = "***"
SettingPath = tuple[str | int, ...]
"""Keys, and positions in lists, from a document down to one of its settings."""

_PART: Final = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+")
_ALWAYS: Final = frozenset(
    {"secret", "secrets", "password", "passwords", "passwd", "credential", "credentials", "apikey"}
)
_NO_SECRET_TOKENS: Final = frozenset(
    {
        *("bos", "cls", "eod", "eom", "eos", "fim", "mask", "null", "pad", "sep", "unk"),
        *("image", "num", "per", "special", "stop", "vocab"),
    }
)
"""Whose tokens are a text's, not an account's."""
_KEY_OWNERS: Final = frozenset({"api", "access", "private", "secret", "auth", "license", "ssh"})
_VARIABLE_ENDS: Final = frozenset({"key", "keys", "pat"})
_PASSWORDS: Final = frozenset({"pass", "pwd", "passphrase", "passcode"})
_IN_URL: Final = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_VARIABLE: Final = re.compile(r"\$\{([^:{}]+)")
_DEFAULT: Final = re.compile(r"\$\{([^:{}]+):[^}]*\}")
_REFERENCE: Final = re.compile(r"\$\{[^:{}]+(:[^}]*)?\}")
_LOOKS_SECRET: Final = re.compile(r"\b(sk|hf|ghp|xox[bp])[-_][A-Za-z0-9_-]{8,}")


def is_secret_key(key: str) -> bool:
    """Whether a setting's name says that its value is a secret.

    `tokenizer_model`, `max_tokens` and `eod_token` are not; `token`, `github_token`, `api_key` are.
    """
    parts = [part.lower() for part in _PART.findall(key)]
    if not parts:
        return False
    last, owner = parts[-1], parts[-2] if len(parts) > 1 else None
    if _ALWAYS.intersection(parts):
        return True
    if last in {"key", "keys"}:
        return owner is None or owner in _KEY_OWNERS
    return last == "token" and owner not in _NO_SECRET_TOKENS


def is_secret_variable(name: str) -> bool:
    """Whether an environment variable's name says that its value is a secret.

    Wider than for settings, of which a workload has many called a key: AZURE_KEY, DB_PASS and
    OPENAI_KEY_2 are, TOKENIZER_PATH and PAD_TOKEN are not.
    """
    parts = [part.lower() for part in _PART.findall(name) if not part.isdigit()]
    if len(parts) < 2:  # PWD is the current folder, and KEY anything
        return bool(parts) and (is_secret_key(parts[0]) or parts[0].endswith("password"))
    return (
        is_secret_key("_".join(parts))
        or parts[-1] in _VARIABLE_ENDS
        or not _PASSWORDS.isdisjoint(parts)
    )


def redact_text(text: str) -> str:
    """`text` without user names in addresses, defaults of secrets, and what looks like a provider's
    key."""
    return _LOOKS_SECRET.sub(REDACTED, _IN_URL.sub(REDACTED, without_defaults(text)))


def without_user(text: str) -> str:
    """`text` without user names and passwords in addresses, unless they are references."""
    return _IN_URL.sub(lambda user: user[0] if "${" in user[0] else REDACTED, text)


def without_defaults(text: str) -> str:
    """`text` whose references to variables named as secrets default to nothing."""
    return _DEFAULT.sub(
        lambda match: f"${{{match[1]}:}}" if is_secret_variable(match[1]) else match[0], text
    )


def as_reference(text: Any) -> str | None:
    """A secret's setting as it may be written: a reference alone, without its default. Else None:
    it is, or holds, the secret itself."""
    if not isinstance(text, str) or not _REFERENCE.fullmatch(text):
        return None
    return _DEFAULT.sub(r"${\1:}", text)


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


def key_path(path: SettingPath) -> tuple[str, ...]:
    """`path` as a file's lines are known by: positions in lists as `[3]`."""
    return tuple(key if isinstance(key, str) else f"[{key}]" for key in path)


def secret_paths(value: Any, path: SettingPath = ()) -> Iterator[SettingPath]:
    """Paths of the settings whose key says they are secret and that have a value."""
    for key, item in _items(value):
        if isinstance(key, str) and is_secret_key(key) and item is not None:
            yield (*path, key)
        else:
            yield from secret_paths(item, (*path, key))


def secret_references(value: Any) -> Iterator[tuple[SettingPath, str]]:
    """Path and text of the settings that refer to an environment variable named as a secret."""
    for path, text in texts(value):
        if any(is_secret_variable(name) for name in _VARIABLE.findall(text)):
            yield path, text


def texts(value: Any, path: SettingPath = ()) -> Iterator[tuple[SettingPath, str]]:
    """SettingPath and value of the settings that are text."""
    if isinstance(value, str):
        yield path, value
    for key, item in _items(value):
        yield from texts(item, (*path, key))


def _items(value: Any) -> Iterable[tuple[str | int, Any]]:
    if isinstance(value, dict):
        return value.items()
    return enumerate(value) if isinstance(value, list) else ()
