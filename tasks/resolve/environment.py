"""`${VAR}` and `${VAR:default}` in a file's strings: the one resolver, used for every file.

Only a string that substitution changed is re-typed, with the framework's rules: `true`/`false`,
integers, floats, and `null`; anything else stays text.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dotenv import dotenv_values

from schemas.errors import UserError
from tasks.resolve.yaml_file import KeyPath, YamlFile, is_regular_file, one_line

_REFERENCE: Final = re.compile(r"\$\{([^:{}]+)(?::([^}]*))?\}")
_INDEX: Final = re.compile(r"\[[0-9]{1,6}\]")
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,18}")
_FLOAT: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_WORDS: Final = {"true": True, "false": False, "null": None}


def retype(text: str) -> Any:
    """What a substituted string means: bool, None, int, float, else the text itself."""
    word = text.strip()
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    if _INTEGER.fullmatch(word):
        return int(word)
    if _FLOAT.fullmatch(word):
        return float(word)
    return text


def substitute_text(text: str, env: Mapping[str, str], where: str, error: type[UserError]) -> Any:
    """`text` with its references replaced, re-typed when that changed it.

    Raises `error`, naming `where`, for a required variable that is not set and for a reference
    inside a reference's default, which the format has no meaning for.
    """

    def replace(match: re.Match[str]) -> str:
        name, default = one_line(match.group(1)), match.group(2)
        if default is not None and "${" in default:
            raise error(f"{where}: ${{{name}:…}} has another ${{…}} inside its default")
        value = env.get(name, default)
        if value is None:
            raise error(
                f"{where}: the environment variable {name} is not set",
                hint=f"export {name}=…, or give it a default: ${{{name}:default}}",
            )
        return value

    replaced = _REFERENCE.sub(replace, text)
    return replaced if replaced == text else retype(replaced)


def substitute(file: YamlFile, env: Mapping[str, str], error: type[UserError]) -> dict[str, Any]:
    """The file's document with every reference resolved, as fresh containers."""

    def walk(value: Any, path: KeyPath) -> Any:
        if isinstance(value, dict):
            return {key: walk(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [walk(item, (*path, f"[{i}]")) for i, item in enumerate(value)]
        if isinstance(value, str) and "${" in value:
            return substitute_text(value, env, place(file, path), error)
        return value

    document: dict[str, Any] = walk(file.document, ())
    return document


def variables_of(file: YamlFile, path: KeyPath) -> tuple[str, ...]:
    """The environment variables that the value at `path`, or below it, refers to.

    What came out of one may be a secret, so messages name the variable and not its value.
    """
    value: Any = file.document
    for key in path:
        if isinstance(value, dict):
            value = value.get(key)
        elif isinstance(value, list) and _INDEX.fullmatch(key) and int(key[1:-1]) < len(value):
            value = value[int(key[1:-1])]
    return tuple(dict.fromkeys(_references(value)))


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)
    elif isinstance(value, str):
        yield from (one_line(match.group(1)) for match in _REFERENCE.finditer(value))


def from_variables(names: Sequence[str]) -> str:
    """`the value of ${TP}`, as a message says what was given."""
    return f"the value of {' and '.join(f'${{{name}}}' for name in names)}"


def place(file: YamlFile, path: KeyPath) -> str:
    """`file.yaml:12: modules.pre_trainer.overrides.seq_length`, as messages say it."""
    line = file.line_of(path)
    key = one_line(".".join(path).replace(".[", "["))
    return f"{file.label}{f':{line}' if line else ''}: {key}"


def search_dotenv(env: Mapping[str, str], cwd: Path) -> dict[str, str]:
    """`env` over the `.env` files of `cwd`, its repository's root and the home directory.

    The environment wins over every file, and the nearer file over the farther. Nothing is exported:
    the mapping returned is all there is of the files, and it may hold secrets.
    """
    home = Path(env["HOME"]) if env.get("HOME") else Path.home()
    found: dict[str, str] = {}
    for folder in (home, _repository_root(cwd), cwd):
        if folder is not None and is_regular_file(folder / ".env"):
            values = dotenv_values(folder / ".env", interpolate=False)
            found |= {key: value for key, value in values.items() if value is not None}
    return found | dict(env)


def _repository_root(folder: Path) -> Path | None:
    """The nearest folder at or above `folder` that holds a `.git`."""
    for candidate in (folder, *folder.parents):
        if (candidate / ".git").exists():
            return candidate
    return None
