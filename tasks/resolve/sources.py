"""Where presets are looked for, and what the files found there are called.

The order is: beside the workload, the `--model-path` folders, then the presets of this package.
"""

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from schemas.errors import WorkloadError
from tasks.resolve.shipped import PRESETS
from tasks.resolve.unsupported import refuse_name
from tasks.resolve.yaml_file import is_regular_file

Kind = Literal["models", "modules"]
_WORDS: Final = {"models": "model preset", "modules": "module preset"}


@dataclass(frozen=True, slots=True)
class Source:
    """A file to read and the name it goes by in messages and records."""

    path: Path
    label: str
    shipped: bool = False

    def beside(self, name: str) -> "Source":
        """The file `name` relative to this one."""
        path = self.path.parent / name
        if self.shipped and path.resolve().is_relative_to(PRESETS.resolve()):
            return shipped(path)
        return Source(path, str(path))


SHIPPED: Final = "refold:"
"""How the names of files that ship with Refold begin."""


def is_shipped(label: str) -> bool:
    """Whether a file's name is one of this package's."""
    return label.startswith(SHIPPED)


def shipped(path: Path) -> Source:
    """A preset of this package; its label does not depend on where the package is installed."""
    return Source(path, f"{SHIPPED}{path.resolve().relative_to(PRESETS.resolve())}", shipped=True)


def shipped_presets(kind: Kind) -> list[Source]:
    """Every shipped preset of one kind, by name."""
    return [shipped(path) for path in sorted((PRESETS / kind).glob("*.yaml"))]


@dataclass(frozen=True, slots=True)
class PresetSearch:
    """The places presets are looked for, for one workload."""

    workload: Source
    model_path: tuple[Path, ...] = ()
    looked_at: dict[Path, bool] = field(default_factory=dict, compare=False)
    """Every file a resolution asked for, but those of this package, and whether it was there."""

    def is_there(self, source: Source) -> bool:
        """Whether a source can be read; that it was asked for is remembered."""
        there = is_regular_file(source.path)
        if not source.shipped:
            self.looked_at[source.path] = there
        return there

    def locate(self, name: str, kind: Kind) -> Source | None:
        """The preset called `name` in the first place that has it."""
        for source in self._candidates(name, kind):
            if self.is_there(source) and not self._is_workload(source):
                return source
        return None

    def find(self, name: str, kind: Kind, asked_by: str, chain: str = "") -> Source:
        """The preset called `name`; `asked_by` is the place that names it.

        Raises UnsupportedModel for a model that is known not to be describable, WorkloadError with
        the nearest shipped name, and the `chain` of files, for one that is nowhere.
        """
        source = self.locate(name, kind)
        if source is not None:
            return source
        if kind == "models":
            refuse_name(name, asked_by)
        names = [source.path.name for source in shipped_presets(kind)]
        near = difflib.get_close_matches(Path(name).name, names, n=1, cutoff=0.6)
        raise WorkloadError(
            f"{asked_by}: there is no {_WORDS[kind]} {name!r:.80} beside the workload,"
            " in --model-path or among the shipped ones"
            + (f"; did you mean {near[0]!r}?" if near else "")
            + (f" ({chain})" if chain else "")
        )

    def is_beside(self, source: Source) -> bool:
        """Whether a preset was found beside the workload, so that only it finds it by name."""
        if source.shipped:
            return False
        folders = [folder.resolve() for folder in self.model_path]
        real = source.path.resolve()
        return not any(real.is_relative_to(folder) for folder in folders)

    def _candidates(self, name: str, kind: Kind) -> Iterable[Source]:
        if "\0" in name:  # no file can be called so, and asking for one raises
            return
        for spelling in _spellings(name):
            if Path(spelling).is_absolute():
                yield Source(Path(spelling), spelling)
                continue
            beside = self.workload.path.parent / spelling
            yield Source(beside, str(beside))
            for folder in self.model_path:
                yield Source(folder / spelling, str(folder / spelling))
                yield Source(folder / kind / spelling, str(folder / kind / spelling))
            inside = PRESETS / kind / spelling
            if inside.resolve().is_relative_to((PRESETS / kind).resolve()):
                yield shipped(inside)

    def _is_workload(self, source: Source) -> bool:
        """Whether a file is a workload rather than a preset, told by its top-level `modules:`.

        A workload is often named after its model (`llama3_8B.yaml` with `model: llama3_8B.yaml`).
        """
        if source.shipped or source.path.suffix == ".json":
            return False
        if source.path.resolve() == self.workload.path.resolve():
            return True
        try:
            with source.path.open("rb") as stream:
                head = stream.read(1 << 20)
        except OSError:  # reading it as a preset says what is wrong
            return False
        return any(line.startswith(b"modules:") for line in head.splitlines())


def _spellings(name: str) -> list[str]:
    """`name`, and with the suffixes people leave out; a folder means its config.json."""
    if Path(name).suffix in {".yaml", ".yml", ".json"}:
        return [name]
    return [name, f"{name}.yaml", f"{name}/config.json"]


def preset_name(path: Path) -> str:
    """The name a model goes by: its file's, or its folder's when the file is a config.json."""
    return path.parent.name if path.name == "config.json" else path.name.removesuffix(path.suffix)
