"""A lease: the right to write, held by one process at a time, with a name on it."""

from datetime import datetime
from typing import Protocol

from schemas.model import FrozenModel


class Owner(FrozenModel):
    """Who holds a lease."""

    pid: int
    process_started: str
    """When the process began, in the system's own words: tells a reused pid apart."""
    host: str
    since: datetime

    @property
    def words(self) -> str:
        """`process 4711 on host node1 since 2026-01-02 03:04:05 UTC`."""
        return f"process {self.pid} on host {self.host} since {self.since:%Y-%m-%d %H:%M:%S} UTC"


class Lease(Protocol):
    """A held lease."""

    @property
    def owner(self) -> Owner:
        """Who holds it."""

    @property
    def took_over(self) -> Owner | None:
        """The dead owner it was taken over from; None: it was free."""

    def release(self) -> None:
        """Give it back. Releasing twice is the same as once."""
