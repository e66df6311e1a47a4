"""Every setting of a model, and another value for each: what properties of all of them run over."""

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from schemas.model import FrozenModel

Path = tuple[str, ...]


def leaves(value: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of a JSON value's leaves; an empty mapping and a list are one."""
    if isinstance(value, dict) and value:
        for key, below in value.items():
            yield from leaves(below, (*path, key))
    else:
        yield path


def spellings(schema: Any) -> Iterator[Any]:
    """Every fixed value that a JSON schema names."""
    if isinstance(schema, dict):
        yield from schema.get("enum", ())
        if "const" in schema:
            yield schema["const"]
        for below in schema.values():
            yield from spellings(below)
    elif isinstance(schema, list):
        for below in schema:
            yield from spellings(below)


def with_leaf(values: dict[str, Any], path: Path, value: Any) -> dict[str, Any]:
    head, *rest = path
    return {**values, head: with_leaf(values[head], tuple(rest), value) if rest else value}


def changed_at(model: FrozenModel, path: Path) -> FrozenModel | None:
    """`model` with another value at `path`; None: it cannot have one, all else left as it is."""
    values = model.model_dump(mode="json")
    named = sorted(set(spellings(type(model).model_json_schema())), key=str)
    candidates = [
        *(True, False, 1, 2, 3, 8, 16, 0.5, 0.25, 2000, 10**5, 1e10, 12345.5, "another", None),
        *(["another"], [1], [[0, 1]], {"tp": 2}, {"a": "1"}, {"layer": 2.0}, {"model": "one"}),
        *named,
        *([name] for name in named),
    ]
    for candidate in candidates:
        try:
            changed = type(model).model_validate(with_leaf(values, path, candidate))
        except ValidationError:
            continue
        if changed.model_dump(mode="json") != values:
            return changed
    return None


def is_listed(name: str, names: tuple[str, ...]) -> bool:
    return any(name == one or name.startswith(f"{one}.") for one in names)
