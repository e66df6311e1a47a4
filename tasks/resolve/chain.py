"""`extends:` (or `bases:`) chains: one file with everything below it merged in.

Later entries of a list win over earlier ones, and the file itself wins over all it extends.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from schemas.errors import WorkloadError
from tasks.resolve.environment import substitute, variables_of
from tasks.resolve.hugging_face import read_config
from tasks.resolve.merging import Document, Origin
from tasks.resolve.sources import Kind, PresetSearch, Source
from tasks.resolve.yaml_file import YamlFile, parse_yaml, read_bytes

_MAX_LENGTH: Final = 32
"""Longest chain of files that extend each other."""
_KEYWORDS: Final = ("extends", "bases")


class ChainLoader:
    """Loads files with what they extend, once each, and records what was read.

    `files` maps each file's label to the SHA-256 of its bytes.
    """

    def __init__(self, search: PresetSearch, env: Mapping[str, str]) -> None:
        self.search = search
        self.env = env
        self.files: dict[str, str] = {}
        self._loaded: dict[Path, Document] = {}

    def load(self, source: Source, kind: Kind) -> Document:
        """The document of `source` over everything it extends.

        Raises WorkloadError for a cycle or a missing file, printing the chain that led there.
        """
        return self._load(source, kind, ())

    def read(self, source: Source) -> tuple[YamlFile, Document]:
        """One file by itself: as written, and with its references resolved."""
        data = read_bytes(source.path, source.label, WorkloadError)
        if source.path.suffix == ".json":
            file = read_config(data, source)
        else:
            file = parse_yaml(data, source.label, WorkloadError)
        self.files[source.label] = file.sha256
        values = substitute(file, self.env, WorkloadError)
        return file, Document(values, _origins(file, values))

    def _load(self, source: Source, kind: Kind, chain: tuple[Source, ...]) -> Document:
        real = source.path.resolve()
        if real in {one.path.resolve() for one in chain}:
            raise WorkloadError(f"extends goes in a circle: {_printed((*chain, source))}")
        if len(chain) >= _MAX_LENGTH:
            raise WorkloadError(
                f"extends goes more than {_MAX_LENGTH} files deep: {_printed(chain[:4])} → …"
            )
        if real in self._loaded:
            return self._loaded[real]
        _, own = self.read(source)
        base = Document()
        for parent in self._parents(own, source, kind, chain):
            base = self._load(parent, kind, (*chain, source)).over(base)
        merged = own.without(*_KEYWORDS).over(base)
        self._loaded[real] = merged
        return merged

    def merge_bases(self, own: Document, source: Source, kind: Kind) -> Document:
        """`own`, already read from `source`, over everything it extends."""
        base = Document()
        for parent in self._parents(own, source, kind, ()):
            base = self._load(parent, kind, (source,)).over(base)
        return own.without(*_KEYWORDS).over(base)

    def _parents(
        self, own: Document, source: Source, kind: Kind, chain: tuple[Source, ...]
    ) -> list[Source]:
        parents = []
        for keyword in _KEYWORDS:
            named: Any = own.values.get(keyword)
            if named is None:
                continue
            where = own.origins.get((keyword,), Origin(source.label, keyword))
            names = [named] if isinstance(named, str) else named
            if not isinstance(names, list) or not all(isinstance(n, str) and n for n in names):
                raise WorkloadError(f"{where}: expected a file name or a list of file names")
            parents += [self._parent(name, source, kind, chain, where) for name in names]
        return parents

    def _parent(
        self, name: str, source: Source, kind: Kind, chain: tuple[Source, ...], where: Origin
    ) -> Source:
        """The file `name` that `source` extends: relative to it, else wherever presets are."""
        relative = source.beside(name)
        if self.search.is_there(relative):
            return relative
        found = self.search.locate(name, kind) or self.search.locate(Path(name).name, kind)
        if found is not None:
            return found
        path = f"{_printed((*chain, source))} → {name}"
        return self.search.find(name, kind, str(where), f"extends: {path}")


def _origins(file: YamlFile, values: dict[str, Any]) -> dict[tuple[str, ...], Origin]:
    """The origin of every key of one file."""
    origins = {}

    def walk(mapping: dict[str, Any], path: tuple[str, ...]) -> None:
        for key, value in mapping.items():
            here = (*path, key)
            variables = variables_of(file, here) if not isinstance(value, dict) else ()
            origins[here] = Origin(file.label, ".".join(here), file.line_of(here), variables)
            if isinstance(value, dict):
                walk(value, here)

    walk(values, ())
    return origins


def _printed(chain: tuple[Source, ...]) -> str:
    """`a.yaml → b.yaml → c.yaml`, with the folders only where names repeat."""
    names = [source.path.name for source in chain]
    if len({source.path.resolve() for source in chain}) == len(set(names)):
        return " → ".join(names)
    return " → ".join(source.label for source in chain)
