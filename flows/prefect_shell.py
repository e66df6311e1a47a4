"""Runs the steps of a search as Prefect tasks, or in process; the steps are the same functions.

Prefect shows, times and orchestrates; what happened is in the event log and nowhere else. So a
task is a stage of a round, its result is not persisted and not cached, and a single trial is plain
code inside a stage.
"""

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from flows.temporary_server import answers, temporary_server
from schemas.errors import EnvironmentMissing

Returned = TypeVar("Returned")

DEFAULT_URL = "http://127.0.0.1:4200/api"
"""Where `prefect server start` listens unless told otherwise."""
PROBE_TIMEOUT_S = 0.5
CONFIGURED_TIMEOUT_S = 5.0


def environment(home: Path) -> dict[str, str]:
    """What Prefect reads from the environment while it is imported; what is set already stays."""
    return {
        "PREFECT_HOME": str(home),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        # A failure is reported by the command line, once; Prefect's log adds its traceback to it.
        "PREFECT_LOGGING_LEVEL": "CRITICAL",
        "PREFECT_LOGGING_TO_API_ENABLED": "false",
        "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
        "RAY_AUTH_MODE": "disabled",
    }


def prepare_environment(home: Path) -> None:
    """Sets `environment(home)`; call it before anything imports prefect."""
    for key, value in environment(home.absolute()).items():
        os.environ.setdefault(key, value)


@contextmanager
def api(wanted: bool | None, home: Path, say: Callable[[str], None]) -> Iterator[str | None]:
    """The URL of the API to run under, or None for in process, saying which in one line.

    `wanted`: True for `--prefect` (a temporary server when there is no other), False for
    `--no-prefect`, None to use an API that is configured or reachable.

    Raises:
        EnvironmentMissing: Prefect was asked for by name and its API does not answer.
    """
    if wanted is False:
        yield None
        return
    prepare_environment(home)
    url = _standing(wanted is True, say)
    with ExitStack() as stack:
        if url is None and wanted:
            say("Prefect: starting a temporary server, which stops with this run")
            server = stack.enter_context(temporary_server(Path(os.environ["PREFECT_HOME"])))
            url = server.url
            stack.enter_context(_environment_variable("PREFECT_API_URL", url))
            stack.enter_context(_environment_variable("NO_PROXY", past_proxies()))
            import_module("flows.prefect_flow")  # seconds, while the server takes its own
            server.ready()
        elif url is not None:
            say(f"Prefect: running under {_without_credentials(url)}")
            # Prefect makes this folder and none above it, and a new store has none yet.
            Path(os.environ["PREFECT_HOME"]).mkdir(parents=True, exist_ok=True)
            stack.enter_context(_environment_variable("PREFECT_API_URL", url))
        yield url


def _standing(asked_by_name: bool, say: Callable[[str], None]) -> str | None:
    configured = os.environ.get("PREFECT_API_URL")
    url = (configured or DEFAULT_URL).rstrip("/")
    try:
        answers(url, CONFIGURED_TIMEOUT_S if configured else PROBE_TIMEOUT_S)
    except OSError:
        shown = _without_credentials(url)
        if configured and asked_by_name:
            raise EnvironmentMissing(
                f"PREFECT_API_URL is {shown}, which does not answer",
                hint="start that server, or unset PREFECT_API_URL to get a temporary one",
            ) from None
        if configured:
            say(f"Prefect: {shown} (PREFECT_API_URL) does not answer; running in process")
        elif not asked_by_name:
            say("Prefect: no API configured or reachable; running in process")
        return None
    return url


def _without_credentials(url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def past_proxies() -> str:
    """NO_PROXY with this machine in it: a proxy cannot reach our own loopback address."""
    existing = os.environ.get("NO_PROXY") or os.environ.get("no_proxy") or ""
    return ",".join(filter(None, (existing, "127.0.0.1", "localhost")))


@contextmanager
def _environment_variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


class StageFailed(Exception):
    """What Prefect is told of a failure: the error's type alone.

    Prefect pickles the errors it sees to disk and sends their text to its API, and an error's text
    may quote a user's file. `error` stays in this process: pickling leaves it out.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(type(error).__name__)
        self.error = error

    def __reduce__(self) -> tuple[type[Exception], tuple[str]]:
        """Pickles as a plain exception with the same text."""
        return Exception, (f"StageFailed: {self}",)


@contextmanager
def concealed() -> Iterator[None]:
    """Inside a flow or task: what is raised leaves as a `StageFailed`."""
    try:
        yield
    except Exception as error:
        raise StageFailed(error) from error


@contextmanager
def revealed() -> Iterator[None]:
    """Around a flow or task: a `StageFailed` is the error it stands for again."""
    try:
        yield
    except StageFailed as failed:
        raise failed.error from None


def as_task(name: str, step: Callable[..., Returned], *args: Any) -> Returned:
    """Runs `step(*args)` as one Prefect task called `name`; a generator's items pass through it.

    The arguments are bound rather than passed: Prefect walks and records what it is passed.
    """
    from prefect import task
    from prefect.cache_policies import NO_CACHE

    def whole() -> Any:
        with concealed():
            return step(*args)

    def stream() -> Iterator[Any]:
        with concealed():
            yield from cast(Any, step)(*args)

    # Not retried, whatever PREFECT_TASKS_DEFAULT_RETRIES says: half a stage is in the log already.
    made: Any = task(name=name, cache_policy=NO_CACHE, persist_result=False, retries=0)
    if inspect.isgeneratorfunction(step):
        return cast(Returned, _revealing(made(stream)()))
    with revealed():
        return cast(Returned, made(whole)())


def _revealing(items: Iterator[Any]) -> Iterator[Any]:
    with revealed():
        yield from items
