"""`refold server`: what it refuses, each in one line, and what it says when it serves."""

import fcntl
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.standing_server import LOCK_NAME, is_loopback, without_access
from tests.end_to_end.made_once import Standing
from tests.end_to_end.prefect_server import prefect_server, running, stopped
from tests.flows.command import command_line, environment, refold
from tests.flows.healthy import healthy_server

pytestmark = pytest.mark.whole


@pytest.fixture
def healthy() -> Iterator[int]:
    """The port of a server that gives the health answer of a Prefect API."""
    with healthy_server() as port:
        yield port


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that somebody listens on and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def refused(folder: Path, *arguments: object) -> str:
    """What it says on stderr when it exits as for a missing environment."""
    done = refold("server", *arguments, cwd=folder)
    assert done.returncode == 3, done.stderr
    assert done.stdout == ""
    return done.stderr


def test_a_port_at_which_a_prefect_api_answers_is_named_as_one_to_use(tmp_path: Path, healthy: int):
    said = refused(tmp_path, "--port", healthy)
    assert f"a Prefect API answers at http://127.0.0.1:{healthy}/api already" in said
    assert f"export PREFECT_API_URL=http://127.0.0.1:{healthy}/api" in said
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_something_else_has_is_named_as_taken(tmp_path: Path, silent: int):
    said = refused(tmp_path, "--port", silent)
    assert f"port {silent} of 127.0.0.1 is taken by something that is not a Prefect API" in said
    assert "--port" in said.splitlines()[-1]


def test_listening_beyond_this_machine_is_warned_of(tmp_path: Path, healthy: int):
    said = refused(tmp_path, "--port", healthy, "--host", "0.0.0.0")
    assert "the API has no authentication" in said.splitlines()[0]
    assert "authentication" not in refused(tmp_path, "--port", healthy)


@pytest.mark.parametrize("host", ["192.0.2.1", "a..b"])
def test_a_host_that_is_not_this_machine_is_the_users_mistake(tmp_path: Path, host: str):
    done = refold("server", "--host", host, "--port", 0, cwd=tmp_path)
    assert done.returncode == 2
    assert "--host" in done.stderr.splitlines()[-1]


def test_a_second_server_on_the_same_folder_is_refused(tmp_path: Path):
    home = tmp_path / "store" / "prefect"
    home.mkdir(parents=True)
    with (home / LOCK_NAME).open("wb") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        said = refused(tmp_path, "--port", 0, "--store", "store")
    assert f"another `refold server` keeps its state in {home}" in said


@pytest.mark.prefect
def test_a_database_that_is_not_there_is_one_line_without_its_password(tmp_path: Path):
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{bound.getsockname()[1]}/prefect"
        url = f"postgresql+asyncpg://me:hunter2@{where}?password=hunter3"
        env = environment(PREFECT_API_DATABASE_CONNECTION_URL=url)
        done = refold("server", "--port", 0, "--no-ui", cwd=tmp_path, env=env)
    assert done.returncode == 3, done.stderr
    assert f"Prefect's database, postgresql://{where}, cannot be used" in done.stderr
    assert "Traceback" not in done.stderr
    assert "hunter" not in done.stderr + done.stdout


@pytest.mark.prefect
def test_what_it_says_when_ready_is_what_another_shell_needs(tmp_path: Path, standing: Standing):
    home = tmp_path / "a store" / "prefect"
    standing.migrate(home)
    command = command_line("server", "--port", 0, "--no-ui", "--store", "a store")
    with running(command, tmp_path, environment()) as process:
        assert process.stdout is not None
        said = [process.stdout.readline().strip() for _ in range(9)]
        assert stopped(process, signal.SIGINT) == 0
    assert said[0] == "ready"
    url = said[1].split()[1]
    assert said[2] == f"database  {home}/prefect.db"
    assert f"PREFECT_API_URL={url}" in said[5].split()
    assert f"'PREFECT_HOME={home}'" in said[5]
    assert [line.split()[0] for line in said[5:9]] == ["export", "prefect", "prefect", "prefect"]


@pytest.mark.prefect
def test_where_prefect_home_and_a_port_are_set_they_are_used(tmp_path: Path, standing: Standing):
    elsewhere = tmp_path / "elsewhere"
    standing.migrate(elsewhere)
    env = environment(PREFECT_HOME=str(elsewhere), PREFECT_API_URL="http://127.0.0.1:1/api")
    with prefect_server(cwd=tmp_path, env=env) as server:
        assert server.said["home"] == str(elsewhere)
        assert server.ask("admin/settings")["home"] == str(elsewhere)
        assert server.said["ui_url"] + "/api" == server.url
        headers = _headers(server.said["ui_url"])
    assert headers["content-security-policy"].startswith("default-src 'self' ")
    assert "http" not in headers["content-security-policy"]
    assert {path.name for path in tmp_path.iterdir()} == {"elsewhere"}
    assert (elsewhere / "ui" / "v2" / "index.html").exists()


def _headers(url: str) -> dict[str, str]:
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url) as answer:
        assert b"<html" in answer.read()
        return {name.lower(): value for name, value in answer.headers.items()}


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite+aiosqlite:////srv/a/prefect.db", "/srv/a/prefect.db"),
        ("sqlite+aiosqlite:///:memory:", ":memory:"),
        ("postgresql+asyncpg://me:p@ss@db.example:5432/prefect?ssl=x", "postgresql://db.example:5432/prefect"),
        ("postgresql+asyncpg:///prefect?host=/run/pg&password=x", "postgresql:///prefect"),
    ],
)  # fmt: skip
def test_who_is_let_into_a_database_is_never_shown(url: str, shown: str):
    assert without_access(url) == shown


@pytest.mark.parametrize(
    ("host", "whether"),
    [("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("localhost", True),
     ("0.0.0.0", False), ("::", False), ("10.0.0.7", False), ("gpu-head", False)],
)  # fmt: skip
def test_which_hosts_only_this_machine_reaches(host: str, whether: bool):
    assert is_loopback(host) is whether
