"""Workloads that this process has resolved before, from exactly the same files and variables.

A resolution is remembered with every file it asked for, its content or that it was not there, and
every environment variable, and answers again only where all of them are as they were. What ships
with Refold does not change within a process.
"""

import copy
import hashlib
import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from schemas.workload import Workload
from tasks.resolve.effective import Resolved, effective_settings, model_folders
from tasks.resolve.sources import is_shipped
from tasks.resolve.workload import workload_from
from tasks.resolve.yaml_file import MAX_BYTES, is_regular_file

MOST = 1024
"""Workloads that are remembered; then all are forgotten."""


class _Question(NamedTuple):
    path: Path
    folders: tuple[Path, ...]
    current: str
    """The folder that relative paths are relative to."""


class _Known(NamedTuple):
    files: Mapping[Path, tuple[str, str] | None]
    variables: Mapping[str, str | None]
    workload: Workload


@cache
def _memory() -> dict[_Question, _Known]:
    """What is remembered, of this process."""
    return {}


def known_workload(
    path: Path, *, model_path: Sequence[Path] = (), env: Mapping[str, str] | None = None
) -> Workload:
    """As `resolve_workload`, which is asked only if something it looked at is different now."""
    environment = os.environ if env is None else env
    question = _Question(Path(path), model_folders(model_path, environment), os.getcwd())
    memory = _memory()
    known = memory.get(question)
    if known is None or not _holds(known, environment):
        resolved = effective_settings(path, model_path=model_path, env=environment)
        seen = {path: _fingerprint(path) for path in resolved.looked_at}
        known = _Known(seen, resolved.variables, workload_from(resolved, path))
        if _is_what_was_read(known, resolved):
            if len(memory) >= MOST:
                memory.clear()
            memory[question] = known
    return known.workload.model_copy(
        update={
            "document": copy.deepcopy(known.workload.document),
            "files": dict(known.workload.files),
        }
    )


def _is_what_was_read(known: _Known, resolved: Resolved) -> bool:
    """Whether no file changed between its being read and its fingerprint."""
    found = {str(path): seen[1] for path, seen in known.files.items() if seen is not None}
    own = {label: read for label, read in resolved.files.items() if not is_shipped(label)}
    return own.items() <= found.items() and all(
        (known.files[path] is not None) == there for path, there in resolved.looked_at.items()
    )


def _holds(known: _Known, environment: Mapping[str, str]) -> bool:
    return all(environment.get(name) == value for name, value in known.variables.items()) and all(
        _fingerprint(path) == seen for path, seen in known.files.items()
    )


def _fingerprint(path: Path) -> tuple[str, str] | None:
    """Where a file really lies and the SHA-256 of what is in it; None: it cannot be read."""
    if not is_regular_file(path):
        return None
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError:
        return None
    return os.path.realpath(path), hashlib.sha256(data).hexdigest()
