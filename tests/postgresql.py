"""A PostgreSQL of a test's own: a cluster in a folder, reached through a socket in it."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

REQUIRED = "REFOLD_REQUIRE_POSTGRESQL"
"""Set to 1 where a missing PostgreSQL must fail the tests rather than skip them."""
DEBIAN = Path("/usr/lib/postgresql")
NOBODY = "nobody"
START_S = "60"


@dataclass(frozen=True)
class PostgreSQL:
    """A server that runs."""

    folder: Path
    programs: Path

    @property
    def url(self) -> str:
        """How Prefect is told of the database."""
        return f"postgresql+asyncpg://prefect@/prefect?host={self.folder}"

    def rows(self, query: str) -> list[list[str]]:
        """What psql answers."""
        done = _done(
            [
                self.programs / "psql",
                *("--host", self.folder, "--username", "prefect", "--no-psqlrc"),
                *("--tuples-only", "--no-align", "--field-separator", "\t"),
                *("--command", query, "prefect"),
            ]
        )
        return [line.split("\t") for line in done.splitlines()]


def programs() -> Path:
    """The folder of initdb; the test is skipped where there is none, unless it is required."""
    found = sorted(DEBIAN.glob("*/bin/initdb"), key=lambda path: int(path.parts[-3].split(".")[0]))
    on_path = shutil.which("initdb")
    if found:
        return found[-1].parent
    if on_path:
        return Path(on_path).parent
    if os.environ.get(REQUIRED) == "1":
        pytest.fail(f"PostgreSQL is not installed, and {REQUIRED} is 1")
    pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")


@contextmanager
def postgresql(folder: Path) -> Iterator[PostgreSQL]:
    """A new cluster in `folder`, with a database `prefect`; its files are not flushed to disk."""
    server = PostgreSQL(folder, programs())
    data = folder / "data"
    control = server.programs / "pg_ctl"
    settings = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
    with _owned_by_whoever_may_run_it(folder) as as_owner:
        init = (server.programs / "initdb", "--auth", "trust", "--username", "prefect")
        _done([*as_owner, *init, "--no-sync", "--pgdata", data])
        start = (control, "start", "--wait", "--timeout", START_S, "--log", folder / "log")
        _done([*as_owner, *start, "--pgdata", data, "--options", settings])
        try:
            create = (server.programs / "createdb", "--host", folder, "--username", "prefect")
            _done([*create, "prefect"])
            yield server
        finally:
            _done([*as_owner, control, "stop", "--mode", "immediate", "--pgdata", data])


@contextmanager
def _owned_by_whoever_may_run_it(folder: Path) -> Iterator[tuple[str, ...]]:
    """PostgreSQL refuses root: then the folder is nobody's, and so are its processes."""
    if os.geteuid() != 0:
        yield ()
        return
    user = pwd.getpwnam(NOBODY)
    os.chown(folder, user.pw_uid, user.pw_gid)
    opened = [parent for parent in folder.parents if not parent.stat().st_mode & 0o001]
    for parent in opened:  # pytest keeps its folders from other users
        parent.chmod(parent.stat().st_mode | 0o001)
    try:
        yield ("setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups")
    finally:
        for parent in opened:
            parent.chmod(parent.stat().st_mode & ~0o001)


def _done(command: list[object]) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd="/", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
