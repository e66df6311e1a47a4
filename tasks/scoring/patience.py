"""How long a cluster may be silent, or without a worker, before it is taken for lost."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds of the monotonic clock."""

    connect_s: float = 20.0
    """For the first answer of a cluster that is there."""
    look_s: float = 2.0
    """How often one looks whether there are workers while no answer comes."""
    stranded_s: float = 60.0
    """Without a worker for so long, nobody is expected to come."""

    def begin(self) -> Callable[[bool], bool]:
        """A watch to be told at each look whether there is a worker; it says when to give up."""
        since = time.monotonic()

        def stranded(anybody: bool) -> bool:
            nonlocal since
            now = time.monotonic()
            if anybody:
                since = now
            return now - since > self.stranded_s

        return stranded
