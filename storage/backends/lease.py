"""A lease: the right to write, held by one process at a time, with a name on it."""

from datetime import datetime
from typing import Protocol

from schemas.errors import RunLocked
from schemas.model import FrozenModel


class Owner(FrozenModel):
    """Who holds a lease."""

    pid: int
    process_started: str
    """When the process began, in the system's own words: tells a reused pid apart."""
    host: str
    since: datetime
    machine: str = ""
    """What `pid` is unique in, a boot and a container; empty: unknown."""

    @property
    def words(self) -> str:
        """`process 4711 on host node1 since 2026-01-02 03:04:05 UTC`."""
        return f"process {self.pid} on host {self.host} since {self.since:%Y-%m-%d %H:%M:%S} UTC"

    def is_same_process(self, other: "Owner") -> bool:
        """Whether both are one process, whenever it took the lease."""
        return (self.pid, self.process_started, self.host, self.machine) == (
            other.pid,
            other.process_started,
            other.host,
            other.machine,
        )


class Lease(Protocol):
    """A held lease."""

    @property
    def owner(self) -> Owner:
        """Who holds it."""

    @property
    def took_over(self) -> Owner | None:
        """The dead owner it was taken over from; None: it was free."""

    def check(self) -> None:
        """Make sure that it is still held.

        Raises:
            RunLocked: another process took it over.
        """

    def release(self) -> None:
        """Give it back. Releasing twice is the same as once."""


def locked(what: str, holder: Owner | None) -> RunLocked:
    """The refusal of `what`, which `holder` has."""
    if holder is None:
        return RunLocked(f"{what} is held by another process that took it a moment ago")
    return RunLocked(
        f"{what} is held by {holder.words}", hint="wait for that process, or stop it and try again"
    )
