"""The targets file, read: what a night is to look at."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from schemas.errors import UserError
from schemas.model import FrozenModel
from schemas.signature import content_hash
from schemas.targets import Schedule, Target, TargetEntry, TargetSettings, TargetsFile
from tasks.nightly.slots import checked
from tasks.resolve.environment import place, substitute
from tasks.resolve.file_schema import as_model
from tasks.resolve.yaml_file import YamlFile, is_regular_file, read_yaml

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Targets:
    """What a targets file asks for."""

    name: str
    schedule: Schedule
    targets: tuple[Target, ...]
    spec: str
    """Hash of the targets, and of the text of the files they name: with another one, a night of
    the same slot is another night."""


def read_targets(path: Path, *, env: Mapping[str, str] | None = None) -> Targets:
    """The targets file at `path`. Its own paths are relative to it.

    Raises:
        UserError: it cannot be read, or something in it is wrong. A file that a target names is
            looked at when it is that target's turn.
    """
    label = str(path)
    file = read_yaml(path, label, UserError)
    document = substitute(file, os.environ if env is None else env, UserError)
    entries = tuple(_entries(file, document))
    known = {**document, "targets": ()}
    parsed = as_model(_WithoutTargets, {k: v for k, v in known.items() if k != "targets"}, file)
    checked(parsed.schedule, place(file, ("schedule",)))
    targets = tuple(_target(entry, parsed.defaults, path.parent) for entry in entries)
    _refuse_twice(file, targets)
    name = parsed.name or path.stem
    return Targets(name, parsed.schedule, targets, _spec(name, targets, path.parent))


class _WithoutTargets(FrozenModel):
    """The file but for the targets, which are read one by one: their mistakes have a place."""

    name: str | None = TargetsFile.model_fields["name"].default
    schedule: Schedule = Schedule()
    defaults: TargetSettings = TargetSettings()


def _entries(file: YamlFile, document: Mapping[str, Any]) -> Iterator[TargetEntry]:
    listed = document.get("targets")
    if not isinstance(listed, list) or not listed:
        raise UserError(
            f"{place(file, ('targets',))}: expected a list of at least one target",
            hint="each has a workload: and a target_cluster:",
        )
    for number, entry in enumerate(listed):
        at = ("targets", f"[{number}]")
        if not isinstance(entry, dict):
            raise UserError(f"{place(file, at)}: expected a mapping with workload, target_cluster")
        for needed in ("workload", "target_cluster"):
            if not isinstance(entry.get(needed), str) or not entry[needed].strip():
                raise UserError(f"{place(file, at)}: {needed} must name a file")
        yield as_model(TargetEntry, entry, file, at)


def _target(entry: TargetEntry, defaults: TargetSettings, folder: Path) -> Target:
    """`entry` over `defaults` over the built-in ones."""
    paths = {"workload": _from(folder, entry.workload)}
    paths["target_cluster"] = _from(folder, entry.target_cluster)
    settings = {
        name: value
        for source in (defaults, entry)
        for name in TargetSettings.model_fields
        if (value := getattr(source, name)) is not None
    }
    if "model_path" in settings:
        settings["model_path"] = tuple(_from(folder, known) for known in settings["model_path"])
    name = entry.name or f"{entry.workload.stem}-{entry.target_cluster.stem}"
    return Target(name=name, **paths, **settings)


def _from(folder: Path, path: Path) -> Path:
    return Path(os.path.normpath(folder / path.expanduser()))


def _refuse_twice(file: YamlFile, targets: tuple[Target, ...]) -> None:
    """Names are folders and what nights know targets by: each has its own."""
    taken = Counter(folder_of(target.name).casefold() for target in targets)
    for number, target in enumerate(targets):
        if taken[folder_of(target.name).casefold()] > 1:
            raise UserError(
                f"{place(file, ('targets', f'[{number}]'))}: another target is called"
                f" {target.name!r} too",
                hint="give each a name: of its own",
            )


def folder_of(name: str) -> str:
    """The folder a target's artefacts go to."""
    return _UNSAFE.sub("-", name).strip(".-") or "target"


def _spec(name: str, targets: tuple[Target, ...], folder: Path) -> str:
    """Paths count as seen from the targets file: a night is the same wherever it is fired from."""

    def seen(path: Path) -> Path:
        return Path(os.path.relpath(path, folder))

    files = {p for target in targets for p in (target.workload, target.target_cluster)}
    said = [
        target.model_copy(
            update={
                "workload": seen(target.workload),
                "target_cluster": seen(target.target_cluster),
                "model_path": tuple(map(seen, target.model_path)),
            }
        )
        for target in targets
    ]
    return content_hash(
        {
            "name": name,
            "targets": [target.model_dump(mode="json") for target in said],
            "files": {str(seen(path)): _digest(path) for path in sorted(files)},
        }
    )


def _digest(path: Path) -> str | None:
    """None: its target fails, and says why."""
    if not is_regular_file(path):
        return None
    try:
        return sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None
