"""A parsed YAML file as one of our models, with every mistake one line that names its place."""

import difflib
import types
import typing
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from schemas.errors import ClusterError
from schemas.wording import problem
from tasks.resolve.environment import from_variables, place, variables_of
from tasks.resolve.redaction import is_secret_key, redact_text
from tasks.resolve.yaml_file import KeyPath, YamlFile

_LONGEST: Final = 60
_M = TypeVar("_M", bound=BaseModel)


def as_model(model: type[_M], document: dict[str, Any], file: YamlFile, at: KeyPath = ()) -> _M:
    """`document`, which stands at `at` in `file`, as a `model`.

    Null means the default. Raises ClusterError for an unknown key, with the nearest right one, and
    for a value of the wrong type or out of range.
    """
    known = _checked(model, document, file, at)
    try:
        return model.model_validate(known)
    except ValidationError as reason:  # its text holds the input, which may be a secret
        first = reason.errors()[0]
        path = (*at, *_key_path(known, first["loc"]))
        raise ClusterError(
            f"{place(file, path)}: {problem(first)}{_got(file, path, first['input'])}"
        ) from None


def _checked(
    model: type[BaseModel], document: dict[str, Any], file: YamlFile, at: KeyPath
) -> dict[str, Any]:
    """`document` without nulls, its keys and the kinds of its values checked against `model`."""
    known: dict[str, Any] = {}
    for key, value in document.items():
        path = (*at, key)
        field = model.model_fields.get(key)
        if field is None:
            raise ClusterError(f"{place(file, path)}: unknown key{_nearest(key, model)}")
        if value is None:
            continue
        section, accepts_bool = _kinds(field.annotation)
        if isinstance(value, bool) and not accepts_bool:
            raise ClusterError(
                f"{place(file, path)}: expected another value, got {str(value).lower()}"
                " (YAML reads on, off, yes and no as true and false)"
            )
        if section is not None and isinstance(value, dict):
            value = _checked(section, value, file, path)
        elif section is not None and not _accepts_scalar(field.annotation):
            got = _got(file, path, value)
            raise ClusterError(f"{place(file, path)}: expected a mapping of keys to values{got}")
        known[key] = value
    return known


def _got(file: YamlFile, path: KeyPath, value: Any) -> str:
    """`, got …` for a message, unless the value is a mapping or may be a secret."""
    if isinstance(value, dict) or any(is_secret_key(key) for key in path):
        return ""
    return f", got {shown(file, path, value)}"


def shown(file: YamlFile, path: KeyPath, value: Any) -> str:
    """The value at `path` as a message quotes it: cut short, or the variable it came out of."""
    variables = variables_of(file, path)
    if variables:
        return from_variables(variables)
    text = redact_text(repr(value))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _kinds(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The model among the types of a field, if any, and whether a boolean is one of them."""
    section, accepts_bool = None, False
    for kind in _alternatives(annotation):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            section = kind
        accepts_bool = accepts_bool or kind is bool
    return section, accepts_bool


def _accepts_scalar(annotation: Any) -> bool:
    return any(kind in (int, float, str, bool) for kind in _alternatives(annotation))


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return typing.get_args(annotation)
    return (annotation,)


def _nearest(key: str, model: type[BaseModel]) -> str:
    near = difflib.get_close_matches(key.lower(), model.model_fields, n=1, cutoff=0.5)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; the keys here are {', '.join(model.model_fields)}"


def _key_path(document: Any, location: tuple[int | str, ...]) -> KeyPath:
    """The part of a validation error's location that is keys and indices of the document."""
    path: list[str] = []
    for part in location:
        if isinstance(document, dict) and part in document:
            document = document[part]
            path.append(str(part))
        elif isinstance(document, list) and isinstance(part, int) and part < len(document):
            document = document[part]
            path.append(f"[{part}]")
        elif isinstance(document, dict) and isinstance(part, str) and not path:
            path.append(part)
    return tuple(path)
