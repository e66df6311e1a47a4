"""`refold server` and a worker as a person starts them, and what Prefect's API says."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from tests.flows.command import ROOT, command_line

STOP_S = 60
CHECKOUT = ("schemas", "projection", "storage", "tasks", "flows", "examples")
RECORDER = '''
"""Writes down every address this process and those it starts ask for or connect to."""
import os
import sys


def note(event, arguments):
    if event == "socket.connect" and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    elif event == "socket.getaddrinfo":
        host = arguments[0]
    else:  # such as a socket of this machine's file system
        return
    line = (host.decode() if isinstance(host, bytes) else str(host)) + "\\n"
    log = os.open(os.environ["REFOLD_TEST_ADDRESSES"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, line.encode())
    os.close(log)


sys.addaudithook(note)
'''

Found = TypeVar("Found")


@dataclass(frozen=True)
class PrefectServer:
    """A server that is ready."""

    process: "subprocess.Popen[str]"
    said: dict[str, Any]

    @property
    def url(self) -> str:
        return str(self.said["api_url"])

    def ask(self, path: str, **body: Any) -> Any:
        """What the API answers to GET `path`, or to POST with a body."""
        request = urllib.request.Request(
            f"{self.url}/{path}",
            data=json.dumps(body).encode() if body else None,
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
            return json.load(answer)

    def artifacts(self) -> dict[str, Any]:
        """The newest version of each artifact's data, by key."""
        found = self.ask("artifacts/latest/filter", limit=100)
        return {artifact["key"]: artifact["data"] for artifact in found}


@contextmanager
def prefect_server(
    *arguments: object, cwd: Path, env: Mapping[str, str]
) -> Iterator[PrefectServer]:
    """`refold server` on a free port, ready; stopped by SIGTERM at the end, which it must heed."""
    with running(command_line("server", "--port", 0, "--json", *arguments), cwd, env) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, "the server ended before it was ready"
        yield PrefectServer(process, json.loads(line))
        assert stopped(process, signal.SIGTERM) == 0


@contextmanager
def running(
    command: list[str], cwd: Path, env: Mapping[str, str]
) -> Iterator["subprocess.Popen[str]"]:
    """A process in a session of its own, killed at the end if it still is there."""
    process = subprocess.Popen(
        command, cwd=cwd, env=dict(env), stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def stopped(process: "subprocess.Popen[str]", number: int) -> int:
    """How it ended once it was sent the signal."""
    process.send_signal(number)
    return process.wait(STOP_S)


def prefect(*arguments: str) -> list[str]:
    """The argument vector of Prefect's own command."""
    return [sys.executable, "-m", "prefect", *arguments]


def checkout_in(folder: Path) -> Path:
    """What a worker needs of a checkout, in a folder of its own."""
    root = folder / "checkout"
    root.mkdir()
    for name in CHECKOUT:
        shutil.copytree(ROOT / name, root / name)  # with what Python has compiled of it already
    shutil.copy(ROOT / "prefect.yaml", root)
    return root


def recording(folder: Path) -> dict[str, str]:
    """The environment of processes whose connections `addresses` tells."""
    hook = folder / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(RECORDER)
    return {"PYTHONPATH": str(hook), "REFOLD_TEST_ADDRESSES": str(folder / "addresses")}


def addresses(folder: Path) -> set[str]:
    """The hosts that were looked up or connected to."""
    return set((folder / "addresses").read_text().splitlines())


def eventually(ask: Callable[[], Found | None], within_s: float, what: str) -> Found:
    """The first answer that is one, asked for again and again until there is."""
    until = time.monotonic() + within_s
    while (found := ask()) is None:
        assert time.monotonic() < until, f"{what}: not within {within_s} s"
        time.sleep(0.1)
    return found
