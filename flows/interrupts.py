"""Ctrl-C and SIGTERM, kept out of the middle of an append."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupted(KeyboardInterrupt):
    """A search was asked to stop, and its run can be resumed."""

    def __init__(self, run_id: str) -> None:
        super().__init__(f"run {run_id} was interrupted")
        self.run_id = run_id


class Shield:
    """While `raised`, a signal waits; otherwise it does what it did before, or interrupts."""

    def __init__(self) -> None:
        self._up = False
        self._waiting: int | None = None
        self._before: dict[int, Any] = {}

    @contextmanager
    def raised(self) -> Iterator[None]:
        """Nothing interrupts what runs under this; what tried to does so right after it."""
        self._up = True
        try:
            yield
        finally:
            self._up = False
            if self._waiting is not None:
                waiting, self._waiting = self._waiting, None
                self._pass_on(waiting, None)

    def install(self) -> None:
        """Stands in for the handlers of SIGINT and SIGTERM."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._handle)

    def uninstall(self) -> None:
        """Puts the handlers back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._up:
            self._waiting = number
        else:
            self._pass_on(number, frame)

    def _pass_on(self, number: int, frame: FrameType | None) -> None:
        handler = self._before.get(number)
        if callable(handler):
            handler(number, frame)
        elif handler != signal.SIG_IGN:
            raise KeyboardInterrupt


@contextmanager
def shielded() -> Iterator[Shield]:
    """A shield over SIGINT and SIGTERM; only the main thread can be interrupted by either."""
    shield = Shield()
    if threading.current_thread() is not threading.main_thread():
        yield shield
        return
    shield.install()
    try:
        yield shield
    finally:
        shield.uninstall()
