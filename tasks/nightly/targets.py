"""The targets file, read: what a night is to look at."""

import os
import re
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.errors import UserError, shown
from schemas.model import FrozenModel
from schemas.signature import content_hash
from schemas.targets import Schedule, Target, TargetEntry, TargetSettings, TargetsFile
from storage.canonical import sha256_hex
from tasks.inputs import secrets_in, secrets_in_files
from tasks.nightly.slots import checked
from tasks.resolve.environment import place, search_dotenv, substitute
from tasks.resolve.file_schema import as_model
from tasks.resolve.file_schema import shown as as_message
from tasks.resolve.yaml_file import YamlFile, read_bytes, read_yaml

_UNSAFE = re.compile(r"[^\w.-]+")
_LONGEST_NAME = 80
_OF_THE_REPORT = {"report.md", "report.json", "history"}
"""What the report is called in the out-dir, which targets have their folders in."""


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
    at = ("schedule",)
    checked(
        parsed.schedule,
        place(file, at),
        lambda key: as_message(file, (*at, key), getattr(parsed.schedule, key)),
    )
    targets = tuple(_target(entry, parsed.defaults, path.parent) for entry in entries)
    for number, target in enumerate(targets):
        _refuse_unfit(target.name, place(file, ("targets", f"[{number}]")))
    _refuse_twice(file, targets)
    name = parsed.name or path.stem
    _refuse_unfit(name, place(file, ("name",)))
    return Targets(name, parsed.schedule, targets, _spec(name, targets, path.parent))


def secrets_of(asked: Targets) -> frozenset[str]:
    """What may never be written of a night: keys in the environment and in its targets' files."""
    environment = search_dotenv(os.environ, Path.cwd())
    files = {str(p) for one in asked.targets for p in (one.workload, one.target_cluster)}
    found = secrets_in(environment) | secrets_in_files(sorted(files), environment)
    return frozenset(secret.get_secret_value() for secret in found)


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
    with suppress(RuntimeError):  # "~nobody": no such user, so no such file; its target says so
        path = path.expanduser()
    return Path(os.path.normpath(folder / path))


def _refuse_unfit(name: str, where: str) -> None:
    """A name stands on terminals, on pages and in file names."""
    if not name.strip() or not name.isprintable() or len(name) > _LONGEST_NAME:
        raise UserError(
            f"{where}: {shown(name)} cannot be a name",
            hint=f"name: takes 1 to {_LONGEST_NAME} characters that can be printed, on one line",
        )


def _refuse_twice(file: YamlFile, targets: tuple[Target, ...]) -> None:
    """Names are folders and what nights know targets by: each has its own."""
    taken: dict[str, str] = {}
    for number, target in enumerate(targets):
        where = place(file, ("targets", f"[{number}]"))
        folder = _same_on_any_disk(folder_of(target.name))
        if folder in _OF_THE_REPORT:
            raise UserError(
                f"{where}: {target.name!r} is what the report is called in the out-dir",
                hint="give the target another name:",
            )
        if (other := taken.setdefault(folder, target.name)) is not target.name:
            same = "too" if other == target.name else "and would have the same folder"
            raise UserError(
                f"{where}: another target is called {other!r} {same}",
                hint="give each a name: of its own",
            )


def _same_on_any_disk(folder: str) -> str:
    """What names have in common that some disks take for one: case, and how accents are put."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", folder).casefold())


def folder_of(name: str) -> str:
    """The folder a target's artefacts go to."""
    return _UNSAFE.sub("-", unicodedata.normalize("NFC", name)).strip(".-") or "target"


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
    try:
        return sha256_hex(read_bytes(path, str(path), UserError))
    except UserError:  # also of what is no file: a device has no end, and a pipe no beginning
        return None  # its target fails, and says why
