"""Why a model's turn must end now: agents catch what their tools raise, so it is kept apart."""

from collections.abc import Iterator
from contextlib import contextmanager


class Halt:
    """Set once. Whoever answers a model looks here first, and whoever ran it looks here after."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def check(self) -> None:
        """Raises what ended the turn, if it has ended."""
        if self.error is not None:
            raise self.error

    @contextmanager
    def guarding(self) -> Iterator[None]:
        """Keeps what escapes the block, and lets it go on: nothing is answered after it."""
        self.check()
        try:
            yield
        except BaseException as error:
            # The first: what it is wrapped in on its way through an agent says less.
            if self.error is None:
                self.error = error
            raise
