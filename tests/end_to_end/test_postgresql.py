"""Prefect on PostgreSQL: a search whose flow run is in the database, and nothing in SQLite."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.prefect_server import prefect_server
from tests.end_to_end.test_under_prefect import RUNS, only_state, tune_arguments
from tests.flows.command import environment, refold
from tests.postgresql import PostgreSQL, postgresql

pytestmark = pytest.mark.prefect


@pytest.fixture
def database() -> Iterator[PostgreSQL]:
    # The name of a socket has 107 characters at most, and pytest's folders have long ones.
    with tempfile.TemporaryDirectory(prefix="pg-") as folder, postgresql(Path(folder)) as server:
        yield server


def test_a_flow_run_on_postgresql_is_in_its_database(tmp_path: Path, database: PostgreSQL):
    env = environment(PREFECT_API_DATABASE_CONNECTION_URL=database.url)
    with prefect_server("--no-ui", cwd=tmp_path, env=env) as server:
        assert server.said["database"] == "postgresql:///prefect"
        client = environment(PREFECT_API_URL=server.url, PREFECT_HOME=str(server.said["home"]))
        for folder in ("first", "second"):  # right after another one, as nights do
            work = tmp_path / folder
            work.mkdir()
            done = refold(*tune_arguments(work, "--prefect"), cwd=work, env=client)
            assert done.returncode == 0, done.stderr
            assert f"Prefect: running under {server.url}" in done.stderr
            assert only_state(work).finished is not None
    assert database.rows("select state_type, count(*) from flow_run group by 1") == [
        ["COMPLETED", "2"]
    ]
    assert database.rows("select state_type, count(*) from task_run group by 1") == [
        ["COMPLETED", str(2 * RUNS.total())]
    ]
    assert not list(tmp_path.rglob("prefect.db"))
