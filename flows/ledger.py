"""The one writer of a run: appends events and keeps the state they fold to."""

from collections.abc import Callable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Protocol, Self

from flows.interrupts import Shield
from schemas.events import CodeRan, Envelope, Event, LLMCalled, ToolCalled
from storage import Entry, EventLog, State, fold
from storage.run_ids import now_utc

Listener = Callable[[Event, Envelope], None]
"""Told of each event once it is on disk, with where it stands in its run."""


class Recorder(Protocol):
    """What a search needs of its run: to know it, to add to it, and what time it is."""

    @property
    def run_id(self) -> str:
        """The run."""

    @property
    def state(self) -> State:
        """Everything the run knows."""

    def now(self) -> datetime:
        """The time, for budgets of it."""

    def record(self, *entries: Entry) -> None:
        """Adds events, all or none; they are part of the run when this returns."""

    def anchor(self) -> None:
        """Anchors the head outside the run's folder."""

    def put_blob(self, data: bytes) -> str:
        """Keeps a large text beside the run; its SHA-256."""

    def recorded_call(self, request_key: str) -> tuple[LLMCalled, bytes | None] | None:
        """The call of a language model that the record has next, and its answer.

        None: the record has nothing more, and the model must be asked.

        Raises:
            RefoldError: the record has something else next than this request.
        """

    def recorded_step(self) -> ToolCalled | CodeRan | None:
        """What the record has next of a step of a model's code.

        None: the record has nothing more, and the code must be run.

        Raises:
            RefoldError: the record has something else next.
        """


class Ledger:
    """An open event log, its state as of the last append, and who is told of events."""

    def __init__(
        self,
        log: EventLog,
        shield: Shield,
        state: State | None = None,
        listeners: Sequence[Listener] = (),
    ) -> None:
        self._log = log
        self._shield = shield
        self._state = state
        self._unfolded: list[Envelope] = []
        self._listeners = tuple(listeners)

    @property
    def run_id(self) -> str:
        """The run."""
        return self._log.run_id

    @property
    def state(self) -> State:
        """Everything the run knows."""
        if self._unfolded:
            self._state = fold(self._unfolded, self._state)
            self._unfolded = []
        assert self._state is not None, "a run begins with RunStarted"
        return self._state

    def now(self) -> datetime:
        """The clock."""
        return now_utc()

    def record(self, *entries: Entry) -> None:
        """Appends `entries` as one batch, durably, then tells the listeners.

        Raises:
            LogError: nothing was recorded.
        """
        with self._shield.raised():
            envelopes = self._log.append(entries, self._log.next_seq)
            self._unfolded += envelopes
        for entry, envelope in zip(entries, envelopes, strict=True):
            for listener in self._listeners:
                listener(entry.event, envelope)

    def anchor(self) -> None:
        """Anchors the head outside the run's folder."""
        self._log.anchor_head()

    def put_blob(self, data: bytes) -> str:
        """Keeps a large text beside the run, durably; its SHA-256.

        Raises:
            LogError: it holds a secret, or the disk refused.
        """
        return self._log.put_blob(data)

    def recorded_call(self, request_key: str) -> None:  # noqa: ARG002
        """None: a run that goes on has no answers from the future."""
        return

    def recorded_step(self) -> None:
        """None: a run that goes on has no steps from the future."""
        return

    def compact(self) -> None:
        """Puts a finished run's events into one segment."""
        self._log.compact()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._log.close()
