"""The shipped rows, and rows of a user's own file in the same form.

A row names its architecture (a key of `architectures.yaml`, or a shipped preset) or spells it out.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml
from pydantic import ValidationError

from schemas.architecture import Architecture
from schemas.errors import UserError
from schemas.measured import MeasuredRow
from schemas.wording import problem
from tasks.evidence.rules import Rule, assume, check
from tasks.resolve.preset import preset_architecture

_FOLDER: Final = Path(__file__).parent


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
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {error}") from error
    for at, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield _row(line, f"{path}:{at}")


def _row(line: str, where: str) -> MeasuredRow:
    try:
        raw = json.loads(line)
        if not isinstance(raw, dict) or not isinstance(raw.get("stated"), dict):
            raise UserError(f"{where}: expected an object with the settings under `stated`")
        if "assumed" in raw:
            raise UserError(f"{where}: assumptions come from rules, not from rows")
        architecture = _architecture(raw.get("architecture"))
        assumed = assume(assumption_rules(), raw, architecture)
        return MeasuredRow.model_validate(
            {"source": "user", "citation": where, "quality": "B", **raw}
            | {"architecture": architecture, "assumed": assumed}
        )
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: not JSON: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise UserError(f"{where}: {f'{key}: ' if key else ''}{problem(first)}") from error


def _architecture(named: Any) -> Architecture | None:
    if named is None:
        return None
    if isinstance(named, Mapping):
        return _spelled_out(json.dumps(named, sort_keys=True))
    return _known(str(named))


@cache
def _spelled_out(text: str) -> Architecture:
    fields = json.loads(text)
    preset = fields.pop("preset", None)
    if preset is None:
        return Architecture.model_validate(fields)
    return Architecture.model_validate(_known(str(preset)).model_dump() | _cut(fields, preset))


def _cut(fields: dict[str, Any], preset: str) -> dict[str, Any]:
    """`fields` over a preset, the kinds of layers cut to its new number of layers."""
    layers = fields.get("num_layers")
    whole = _known(preset)
    if layers is not None:
        fields |= {
            name: getattr(whole, name)[:layers]
            for name in ("moe_layers", "windowed_layers")
            if getattr(whole, name)
        }
    return fields


@cache
def _known(name: str) -> Architecture:
    """The architecture `name` of `architectures.yaml`, else the shipped preset's."""
    described = _yaml("architectures.yaml").get(name)
    if described is None:
        return preset_architecture(name)
    fields = {"name": name, **described}
    preset = fields.pop("preset", None)
    if preset is None:
        return Architecture.model_validate(fields)
    return Architecture.model_validate(_known(preset).model_dump() | fields)


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
