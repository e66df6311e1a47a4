"""A search that acknowledges each event from outside its log, and may die at a chosen moment.

    python -m benchmarks.killed_search REQUEST ACKNOWLEDGED [CALL]

REQUEST is a `TuneRequest` or, with `run` in it, a `ResumeRequest`, as JSON. To the file
ACKNOWLEDGED goes a line per event, once the log has said that it is safe: number and hash. With
CALL, the process kills itself (SIGKILL) before its CALL-th call that changes a file or a folder, so
that every state the disk can be left in comes up; else its last line says how many such calls there
were.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flows.requests import ResumeRequest, TuneRequest
from flows.tune import resume, tune
from schemas.events import Envelope, Event

CHANGES = {"open", "os.link", "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}
"""Audit events of calls that change what a folder holds."""


def request_of(text: str) -> TuneRequest | ResumeRequest:
    fields = json.loads(text)
    return ResumeRequest(**fields) if "run" in fields else TuneRequest(**fields)


def search(request: TuneRequest | ResumeRequest, acknowledged: Path, call: int | None) -> None:
    """Runs `request` to its end, or to its `call`-th change."""
    say = os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def line(text: str) -> None:
        os.write(say, f"{text}\n".encode())

    def acknowledge(_: Event, at: Envelope) -> None:
        line(f"{at.seq} {at.hash}")

    def die(name: str, path: str) -> None:
        if changes.count == call:
            line(f"killed before {name} {path}")
            os.kill(os.getpid(), signal.SIGKILL)

    assert request.store is not None
    assert request.out_dir is not None
    changes = Changes((request.store, str(request.out_dir)), die)
    sys.addaudithook(changes)
    if isinstance(request, TuneRequest):
        tune(request, listeners=[acknowledge])
    else:
        resume(request, listeners=[acknowledge])
    line(f"changes {changes.count}")


class Changes:
    """Counts the calls that change something below `folders`, and tells of each before it is made:
    its name and the path. To be added as an audit hook."""

    def __init__(self, folders: tuple[str, ...], tell: Callable[[str, str], None]) -> None:
        self.count = 0
        self._folders = folders
        self._tell = tell

    def __call__(self, name: str, arguments: tuple[Any, ...]) -> None:
        if name not in CHANGES or (name == "open" and not _to_write(arguments[2])):
            return
        path = "" if isinstance(arguments[0], int) else os.fsdecode(arguments[0])
        if path.startswith(self._folders):
            self.count += 1
            self._tell(name.removeprefix("os."), path)


def _to_write(flags: int) -> bool:
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


if __name__ == "__main__":
    search(request_of(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if sys.argv[3:] else None)
