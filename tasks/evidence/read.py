"""The shipped rows, and rows of a user's own file in the same form.

A row names its architecture (a key of `architectures.yaml`, or a shipped preset) or spells it out.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from schemas.architecture import Architecture
from schemas.errors import RefoldError, UserError, shown
from schemas.line import MOST_CHARACTERS
from schemas.measured import MeasuredRow, check_stated
from schemas.wording import problem
from tasks.evidence.rules import Rule, assume, check
from tasks.resolve.preset import preset_architecture, preset_names
from tasks.resolve.yaml_file import read_bytes

_FOLDER: Final = Path(__file__).parent
_MOST_BYTES: Final = 64 << 20
"""Largest file read: a hundred thousand rows."""


@cache
def evidence() -> tuple[MeasuredRow, ...]:
    """Every shipped row, sorted by source and id."""
    files = sorted((_FOLDER / "rows").glob("*.jsonl"))
    rows = [row for path in files for row in read_rows(path)]
    return tuple(sorted(rows, key=lambda row: (row.source, row.id)))


def sources(rows: Iterable[MeasuredRow]) -> tuple[str, ...]:
    """Names of the sources of `rows`, sorted."""
    return tuple(sorted({row.source for row in rows}))


def read_rows(path: Path) -> Iterator[MeasuredRow]:
    """The rows of a file in JSON lines, with what is assumed of each.

    Raises:
        UserError: the file cannot be read or a row is not one; says which line.
    """
    data = read_bytes(path, str(path), UserError, _MOST_BYTES)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start})") from error
    lines: dict[str, int] = {}
    for at, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            row = _row(line, f"{path}:{at}")
            if row.id in lines:
                raise UserError(f"{path}:{at}: id {shown(row.id)} is that of line {lines[row.id]}")
            lines[row.id] = at
            yield row


def _row(line: str, where: str) -> MeasuredRow:
    raw = _object(line, where)
    if not isinstance(raw.get("stated"), dict):
        raise UserError(f"{where}: expected an object with the settings under `stated`")
    if "assumed" in raw:
        raise UserError(f"{where}: assumptions come from rules, not from rows")
    raw["stated"] = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in raw["stated"].items()
    }
    try:
        check_stated(raw["stated"])
        architecture = _architecture(raw.get("architecture"))
        assumed = assume(assumption_rules(), raw, architecture)
        return MeasuredRow.model_validate(
            {"source": "user", "citation": _end_of(where), "quality": "B", **raw}
            | {"architecture": architecture, "assumed": assumed}
        )
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise UserError(f"{where}: {f'{key}: ' if key else ''}{problem(first)}") from error
    except RefoldError as error:
        raise UserError(f"{where}: {error}", hint=error.hint) from error
    except ValueError as error:  # of `check_stated`; a ValidationError is one too
        raise UserError(f"{where}: {error}") from error


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        raw = json.loads(line, object_pairs_hook=_once_each)
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where}: not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise UserError(f"{where}: expected an object with the settings under `stated`")
    return raw


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for at, (key, _) in enumerate(pairs) if key in dict(pairs[:at]))
        raise ValueError(f"the key {shown(twice)} is set twice")
    return found


def _end_of(where: str) -> str:
    """File and line as a citation: the end of a long path."""
    return "".join(c if c.isprintable() else "?" for c in where)[-MOST_CHARACTERS:]


def _architecture(named: Any) -> Architecture | None:
    if named is None:
        return None
    if isinstance(named, Mapping):
        return _spelled_out(json.dumps(named, sort_keys=True))
    return _known(named)


@cache
def _spelled_out(text: str) -> Architecture:
    fields = json.loads(text)
    preset = fields.pop("preset", None)
    if preset is None:
        return Architecture.model_validate(fields)
    whole = _known(preset).model_dump()
    layers = fields.get("num_layers")
    if isinstance(layers, int):  # the kinds of layers are cut to the new number of them
        whole |= {name: whole[name][:layers] for name in ("moe_layers", "windowed_layers")}
    return Architecture.model_validate(whole | fields)


def _known(name: Any) -> Architecture:
    """The architecture `name` of `architectures.yaml`, else the shipped preset's."""
    described, presets = _yaml("architectures.yaml"), preset_names()
    if not isinstance(name, str):
        raise UserError("architecture: expected a name, or an object")
    if name in described:
        return _described(name)
    if name in presets:
        return _preset(name)
    near = get_close_matches(name[:MOST_CHARACTERS], [*described, *presets], n=1)
    raise UserError(
        f"no architecture is called {shown(name)}",
        hint=f"did you mean {near[0]}?" if near else "or spell it out, as an object",
    )


@cache
def _described(name: str) -> Architecture:
    fields = {"name": name, **_yaml("architectures.yaml")[name]}
    preset = fields.pop("preset", None)
    if preset is None:
        return Architecture.model_validate(fields)
    return Architecture.model_validate(_known(preset).model_dump() | fields)


@cache
def _preset(name: str) -> Architecture:
    return preset_architecture(name)


@cache
def assumption_rules() -> tuple[Rule, ...]:
    """The rules of `assumptions.yaml`, then those of `recipes.jsonl`, then of `campaigns.yaml`."""
    recipes = (_FOLDER / "recipes.jsonl").read_text(encoding="utf-8").splitlines()
    found = [
        *_yaml("assumptions.yaml")["rules"],
        *(json.loads(line) for line in recipes),
        *_yaml("campaigns.yaml")["rules"],
    ]
    rules = tuple(Rule.model_validate(each) for each in found)
    check(rules)
    return rules


@cache
def _yaml(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((_FOLDER / name).read_text(encoding="utf-8"))
    return loaded
