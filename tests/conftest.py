"""What is made once: a search that ran to its end, and a Prefect API with its database."""

import os
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from flows.stages import in_process
from flows.temporary_server import temporary_server
from tests.end_to_end.made_once import Standing, Uninterrupted
from tests.end_to_end.searches import request_in, searched

if TYPE_CHECKING:
    from tests.s3_server import S3Server
    from tests.tasks.scoring.running import Clusters


def pytest_configure() -> None:
    """Undoes what the shell that started us may have done to us and all we start."""
    # A developer's own models are not for tests to ask.
    for name in ("OPENAI_API_KEY", "OPENAI_API_BASE", "LLM_MODEL"):
        os.environ.pop(name, None)
    # One that starts us in the background makes us deaf to Ctrl-C.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def fonts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One font cache of matplotlib's for all searches in this process, instead of one per store."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MPLCONFIGDIR", str(tmp_path_factory.mktemp("fonts")))
        yield


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Uninterrupted:
    folder = tmp_path_factory.mktemp("uninterrupted")
    return searched(request_in(folder, seed_budget=24), stage=in_process)


@pytest.fixture(scope="session")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    home = tmp_path_factory.mktemp("prefect")
    database = tmp_path_factory.mktemp("database") / "prefect.db"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREFECT_HOME", str(home))
        patch.setenv("PREFECT_SERVER_ANALYTICS_ENABLED", "false")
        with temporary_server(home) as server:
            server.ready()
            _copy(home / "prefect.db", database)
            yield Standing(server.url, home, database)


@pytest.fixture(scope="session")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Clusters"]:
    """Dask and Ray clusters of two workers; one start each for all tests of this process."""
    from tests.tasks.scoring.running import Clusters

    running = Clusters(tmp_path_factory.mktemp("clusters"))
    with pytest.MonkeyPatch.context() as patch:
        # Ray's token is for the processes of these tests; put back what was before.
        for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN"):
            patch.delenv(name, raising=False)
        yield running
        running.close()


@pytest.fixture(scope="session")
def running_s3() -> Iterator["S3Server"]:
    from tests.s3_server import S3Server  # moto and boto3: not for every test

    server = S3Server()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def s3(running_s3: "S3Server", monkeypatch: pytest.MonkeyPatch) -> Iterator["S3Server"]:
    """An S3 server that behaves, named by the environment."""
    for name, value in running_s3.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    running_s3.requests.clear()
    yield running_s3
    running_s3.faults.clear()
    running_s3.ignores_conditions = False


@pytest.fixture
def s3_store(s3: "S3Server") -> str:
    """The URL of an empty store."""
    return f"s3://{s3.bucket}/{uuid4().hex}/a folder"


def _copy(source: Path, target: Path) -> None:
    """A consistent copy of a database that is in use."""
    reading, writing = sqlite3.connect(source), sqlite3.connect(target)
    try:
        reading.backup(writing)
    finally:
        reading.close()
        writing.close()
