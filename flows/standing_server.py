"""A Prefect server that stays: `refold server`, in the foreground, its whole state in one folder.

Prefect's own `prefect server start` keeps its database in `~/.prefect`, unpacks its pages into the
installed package, asks questions about profiles, and reports home unless told not to. Here the
process is ours: telemetry is off, in its pages too, all files are under PREFECT_HOME, and what is
wrong is one line.
"""

import asyncio
import errno
import fcntl
import ipaddress
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flows.collection_views import from_the_package
from flows.prefect_shell import past_proxies, prepare_environment
from flows.temporary_server import STARTUP_TIMEOUT_S, answers
from flows.terminal import say
from schemas.errors import EnvironmentMissing, UserError, shown

LOCK_NAME = "server.lock"
PROBE_TIMEOUT_S = 2.0
SHUTDOWN_TIMEOUT_S = 10
"""How long requests in hand may take once the server is asked to stop."""

ONLY_FROM_HERE = "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:"
"""For browsers. Prefect's pages ask amplitude.com for its settings even where analytics are off."""


@dataclass(frozen=True, slots=True)
class Serving:
    """What a server that is ready says of itself."""

    api_url: str
    ui_url: str | None
    home: Path
    database: str
    """Where its database is, without user name and password."""


def serve(
    home: Path, host: str, port: int, *, ui: bool, announce: Callable[[Serving], None]
) -> None:
    """Serves Prefect's API until SIGINT or SIGTERM; calls `announce` once flows can be run.

    `home` is PREFECT_HOME unless that is set. `port` 0 is any free one. Sets the environment of
    this process for good.

    Raises:
        UserError: `host` is no address of this machine.
        EnvironmentMissing: the port, the folder or the database cannot be had.
    """
    prepare_environment(home)
    folder = Path(os.environ["PREFECT_HOME"])
    with _listening(host, port) as listener, _alone_in(folder):
        base = f"http://{_in_url(_reachable(host))}:{listener.getsockname()[1]}"
        _settle(folder, ui=ui)
        ready = Serving(f"{base}/api", base if ui else None, folder, _database())
        _run(listener, ready, announce)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _settle(folder: Path, *, ui: bool) -> None:
    """What a server reads from the environment besides; it must be there before prefect is."""
    for name in ("PREFECT_API_URL", "PREFECT_API_KEY"):
        os.environ.pop(name, None)  # of the server this one is not a client of
    os.environ["PREFECT_SERVER_UI_ENABLED"] = str(ui).lower()
    os.environ["NO_PROXY"] = past_proxies()
    for name, value in {
        # By default the pages are unpacked into the installed package.
        "PREFECT_SERVER_UI_STATIC_DIRECTORY": str(folder / "ui"),
        # Relative: the pages then ask the server they came from, whatever it is called there.
        "PREFECT_SERVER_UI_API_URL": "/api",
        "PREFECT_SERVER_UI_SHOW_PROMOTIONAL_CONTENT": "false",
    }.items():
        os.environ.setdefault(name, value)


@contextmanager
def _listening(host: str, port: int) -> Iterator[socket.socket]:
    """A socket that listens: who connects before the server is up waits for it."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError) as error:
        raise UserError(f"--host {shown(host)} is no address and no name of a host") from error
    with socket.socket(family, kind) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(128)
        except OSError as error:
            raise _cannot_listen(host, port, error) from error
        yield listener


def _cannot_listen(host: str, port: int, error: OSError) -> UserError | EnvironmentMissing:
    if error.errno == errno.EADDRNOTAVAIL:
        return UserError(f"--host {host} is no address of this machine")
    if error.errno != errno.EADDRINUSE:
        return EnvironmentMissing(
            f"{host} port {port}: {error.strerror}", hint="try another --port"
        )
    url = f"http://{_in_url(_reachable(host))}:{port}/api"
    try:
        answers(url, PROBE_TIMEOUT_S)
    except OSError:
        return EnvironmentMissing(
            f"port {port} of {host} is taken by something that is not a Prefect API",
            hint="choose another with --port",
        )
    return EnvironmentMissing(
        f"a Prefect API answers at {url} already",
        hint=f"use it: export PREFECT_API_URL={url}; or choose another --port",
    )


def _reachable(host: str) -> str:
    """Where this machine itself reaches a server that listens on `host`."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Two servers on one folder would schedule every run twice."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / LOCK_NAME).open("ab")
    except OSError as error:
        raise EnvironmentMissing(f"{folder}: {error.strerror}", hint="set PREFECT_HOME") from error
    with lock:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise EnvironmentMissing(
                f"another `refold server` keeps its state in {folder}",
                hint="stop it, or set PREFECT_HOME to another folder",
            ) from error
        yield


def _database() -> str:
    """Where the database is: a file, or `postgresql://host/name`; never who is let in, nor how."""
    from prefect.settings import get_current_settings

    secret = get_current_settings().server.database.connection_url
    return without_access(secret.get_secret_value() if secret else "")


def without_access(url: str) -> str:
    """A database's URL without user, password, query and driver; of SQLite the file alone."""
    scheme, _, rest = url.partition("://")
    kind = scheme.partition("+")[0]
    where = rest.partition("?")[0]
    if kind == "sqlite":
        return where.removeprefix("/") or "a database in memory"
    return f"{kind}://{where.rpartition('@')[2]}"


def _run(listener: socket.socket, ready: Serving, announce: Callable[[Serving], None]) -> None:
    import uvicorn
    from prefect.server.api.server import create_app

    app = create_app(final=True)
    server = uvicorn.Server(
        uvicorn.Config(
            from_the_package(app),
            lifespan="off",  # ours to enter: what goes wrong there is one line
            log_level="error",
            headers=[("Content-Security-Policy", ONLY_FROM_HERE)],
            timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S,
        )
    )

    async def announced() -> None:
        # An answer, not a started server: by then its services have had their turn too.
        try:
            await asyncio.to_thread(answers, ready.api_url, STARTUP_TIMEOUT_S)
        except OSError:  # it was stopped first
            return
        announce(ready)

    def stop(number: int, frame: Any) -> None:  # noqa: ARG001
        if not server.should_exit:  # else uvicorn has stopped for it, and passes it on
            raise KeyboardInterrupt

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        asyncio.run(_served(app, server, listener, announced))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


async def _served(
    app: Any,
    server: Any,
    listener: socket.socket,
    announced: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    try:
        async with app.router.lifespan_context(app):
            announcing = asyncio.create_task(announced())
            await server.serve(sockets=[listener])
            await announcing
    except Exception as error:
        if server.should_exit:
            # Its services do not expect to be stopped while they start; what counts is on disk.
            say(f"warning: Prefect's services did not all stop cleanly: {type(error).__name__}")
            return
        if server.started:
            raise
        # Any library between us and the database may say in its own way that it is not there.
        raise EnvironmentMissing(
            f"Prefect's database, {_database()}, cannot be used ({type(error).__name__})",
            hint="PREFECT_API_DATABASE_CONNECTION_URL names it; without, it is a file in the store",
        ) from error
