"""Documents that know where each of their keys came from, and how one is laid over another."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tasks.resolve.yaml_file import KeyPath, one_line


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a key was set; `str` of it is how a message names the place."""

    label: str
    key: str
    line: int | None = None
    variables: tuple[str, ...] = ()
    """Environment variables its value was put together from."""

    def __str__(self) -> str:
        return f"{self.label}{f':{self.line}' if self.line else ''}: {one_line(self.key)}"


@dataclass(frozen=True, slots=True)
class Document:
    """Nested settings, with the origin of every key by its path."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[KeyPath, Origin] = field(default_factory=dict)

    def over(self, base: "Document") -> "Document":
        """This document laid over `base`: mappings merge, everything else of this one wins."""
        return Document(deep_merge(base.values, self.values), base.origins | self.origins)

    def below(self, *path: str) -> "Document":
        """The mapping at `path` as a document of its own; empty when it is not there."""
        values: Any = self.values
        for key in path:
            values = values.get(key) if isinstance(values, dict) else None
        if not isinstance(values, dict):
            return Document()
        depth = len(path)
        origins = {
            where[depth:]: origin
            for where, origin in self.origins.items()
            if where[:depth] == path and len(where) > depth
        }
        return Document(values, origins)

    def without(self, *keys: str) -> "Document":
        """This document less its top-level `keys`."""
        values = {key: value for key, value in self.values.items() if key not in keys}
        origins = {path: where for path, where in self.origins.items() if path[0] not in keys}
        return Document(values, origins)


def deep_merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on `base`: mappings merge key by key, any other value of `over` replaces."""
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            merged[key] = deep_merge(below, value)
        else:
            merged[key] = value
    return merged
