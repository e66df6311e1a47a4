"""What is made once for a whole test session, as values."""

from dataclasses import dataclass
from pathlib import Path

from flows.requests import TuneRequest
from storage import State
from storage.reading import Record
from tests.flows.command import environment


@dataclass(frozen=True)
class Uninterrupted:
    """A finished run in a store of its own, which tests only read."""

    request: TuneRequest
    store: Path
    run_id: str
    records: tuple[Record, ...]
    state: State


@dataclass(frozen=True)
class Standing:
    """A Prefect API that is up for the whole session."""

    url: str
    home: Path
    database: Path
    """A copy of its database, migrated and empty: a fresh one takes tens of seconds."""

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process that is configured to use it."""
        return environment(PREFECT_API_URL=self.url, PREFECT_HOME=str(self.home))

    def migrate(self, home: Path) -> None:
        """Puts a migrated, empty database where a server would make one."""
        home.mkdir(parents=True)
        (home / "prefect.db").write_bytes(self.database.read_bytes())
