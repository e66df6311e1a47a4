"""A Prefect API that lives as long as one run: started as a child, gone when its parent is.

Prefect's own ephemeral server outlives a killed parent and shares the terminal's Ctrl-C. This one
runs in a session of its own, on a socket its parent opened, and stops when the pipe on its
standard input closes, which the kernel does however the parent ends.

Run as a program (`python -m flows.temporary_server FD`) this module is that child.
"""

import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from schemas.errors import EnvironmentMissing

STARTUP_TIMEOUT_S = 180
"""Migrating a fresh database takes tens of seconds on a loaded machine."""
SHUTDOWN_TIMEOUT_S = 20
LOG_NAME = "temporary-server.log"


@dataclass(frozen=True, slots=True)
class TemporaryServer:
    """A server that is starting, or up."""

    url: str
    log: Path

    def ready(self) -> None:
        """Blocks until it answers: one request, since its socket listens from the beginning.

        Raises:
            EnvironmentMissing: it ended (which resets the connection) or took too long.
        """
        try:
            answers(self.url, STARTUP_TIMEOUT_S)
        except OSError as error:
            raise EnvironmentMissing(
                f"the temporary Prefect server did not start ({type(error).__name__})",
                hint=f"its output is in {self.log}; --no-prefect runs the same steps without it",
            ) from error


@contextmanager
def temporary_server(home: Path) -> Iterator[TemporaryServer]:
    """Starts an API whose database is under `home` (PREFECT_HOME), and stops it at the end.

    It takes seconds to be `ready`; its URL is known at once.
    """
    home.mkdir(parents=True, exist_ok=True)
    log = home / LOG_NAME
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/api"
        with log.open("wb") as output:
            child = subprocess.Popen(
                # -P: a folder called flows where the user happens to be is not ours.
                [sys.executable, "-P", "-m", "flows.temporary_server", str(listener.fileno())],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(listener.fileno(),),
                start_new_session=True,
                env=_child_environment(),
            )
    try:
        yield TemporaryServer(url, log)
    finally:
        _stop(child)


def _child_environment() -> dict[str, str]:
    root = str(Path(__file__).resolve().parent.parent)
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    # The server must not take an API URL for its own, nor serve pages nobody will open.
    drop = {"PREFECT_API_URL", "PREFECT_API_KEY"}
    kept = {key: value for key, value in os.environ.items() if key not in drop}
    return {**kept, "PYTHONPATH": path, "PREFECT_UI_ENABLED": "false"}


def answers(url: str, timeout_s: float) -> None:
    """Asks the API at `url` for its health, past any proxy.

    Raises:
        OSError: nothing that is a Prefect API answered in time.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}/health", timeout=timeout_s) as response:
            body = response.read(16).strip()
    except ValueError as error:  # not a URL
        raise OSError(str(error)) from error
    if body != b"true":
        raise OSError(f"{url} is not a Prefect API")


def _stop(child: "subprocess.Popen[bytes]") -> None:
    if child.stdin is not None:
        child.stdin.close()
    try:
        child.wait(SHUTDOWN_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def serve(descriptor: int) -> None:
    """The child: serves Prefect's API on an inherited listening socket until stdin closes."""
    import threading

    import uvicorn
    from prefect.server.api.server import create_app

    config = uvicorn.Config(
        create_app(ephemeral=True, final=True), log_level="error", lifespan="on"
    )
    server = uvicorn.Server(config)

    def stop_with_parent() -> None:
        sys.stdin.buffer.read()
        server.should_exit = True

    threading.Thread(target=stop_with_parent, daemon=True).start()
    server.run(sockets=[socket.socket(fileno=descriptor)])


if __name__ == "__main__":
    serve(int(sys.argv[1]))
