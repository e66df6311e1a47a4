"""A search that runs against its own record: what it would add is compared with what is there.

Nothing is written. The record also answers what a search does not decide: what time it was, in
which order scores arrived, and what other processes noted.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar, cast

from flows.deciding import CACHE
from schemas.errors import RefoldError
from schemas.events import (
    BudgetSpent,
    CodeRan,
    Event,
    LLMCalled,
    NoteTaken,
    RecipeRecalled,
    RunInterrupted,
    RunResumed,
    TailRecovered,
    ToolCalled,
    TrialInvalidated,
    TrialRejected,
    TrialScored,
)
from storage import Entry, State, fold_records
from storage.canonical import sha256_hex
from storage.codec import payload_of
from storage.reading import Record
from tasks.memory_filter import Rejection
from tasks.score import Scored

Returned = TypeVar("Returned")

_PROCESS_EVENTS = (RunResumed, RunInterrupted, TailRecovered, TrialInvalidated, RecipeRecalled)
"""What processes and people did to the run, and what other runs told it: recorded, and nothing a
search decides."""
_NEVER = datetime.min.replace(tzinfo=UTC)
_ALWAYS = datetime.max.replace(tzinfo=UTC)


class Divergence(RefoldError):
    """A step decided something else than the record says."""

    def __init__(self, recorded: Record, reproduced: Entry | None) -> None:
        super().__init__("the run is not reproduced")
        self.recorded = recorded
        self.reproduced = reproduced
        """None: nothing more is decided, and the record goes on."""


class RecordEnds(Exception):
    """The search goes on beyond the record: an unfinished run, or a fork's parent."""


class Rehearsal:
    """A `Recorder` over recorded events.

    Args:
        known: the state before them.
        upcoming: the events to reproduce, and those of processes among them.
        blob: reads a text that was kept beside the run.
    """

    def __init__(
        self, known: State, upcoming: Sequence[Record], blob: Callable[[str], bytes]
    ) -> None:
        self._state = known
        self._blob = blob
        self._upcoming = upcoming
        self._next = 0
        self.compared: list[Record] = []
        """Events that were decided again, the same."""

    @property
    def run_id(self) -> str:
        """The run."""
        return self._state.run_id

    @property
    def state(self) -> State:
        """Everything the run knew at this point."""
        return self._state

    @property
    def recorded_inputs(self) -> int:
        """Events so far that came from outside: processes, people, a damaged cache."""
        return self._next - len(self.compared)

    def now(self) -> datetime:
        """Past every deadline if the record says that time was up here, else before any."""
        return _ALWAYS if isinstance(self._peek(), BudgetSpent) else _NEVER

    def record(self, *entries: Entry) -> None:
        """Compares `entries` with what the record has next.

        Raises:
            Divergence: it has something else.
            RecordEnds: it has nothing more.
        """
        for entry in entries:
            self._skip()
            if self._next == len(self._upcoming):
                raise RecordEnds
            recorded = self._upcoming[self._next]
            if not _same(recorded, entry):
                raise Divergence(recorded, entry)
            self._take()
            self.compared.append(recorded)

    def anchor(self) -> None:
        """Nothing: a rehearsal leaves no trace."""

    def put_blob(self, data: bytes) -> str:
        """Nothing is kept: the record has it, or differs."""
        return sha256_hex(data)

    def recorded_call(self, request_key: str) -> tuple[LLMCalled, bytes | None]:
        """The recorded answer to this request.

        Raises:
            Divergence: the record has another request, or another event, next.
            RecordEnds: it has nothing more.
        """
        self._skip()
        if self._next == len(self._upcoming):
            raise RecordEnds
        recorded = self._upcoming[self._next]
        event = recorded.event
        if not isinstance(event, LLMCalled) or event.request_key != request_key:
            asked = Entry(NoteTaken(text=f"asks a model: request {request_key}", author="replay"))
            raise Divergence(recorded, asked)
        return event, None if event.answer_blob is None else self._blob(event.answer_blob)

    def recorded_step(self) -> ToolCalled | CodeRan:
        """What the record has next of a step of a model's code.

        Raises:
            Divergence: it has something else next.
            RecordEnds: it has nothing more.
        """
        self._skip()
        if self._next == len(self._upcoming):
            raise RecordEnds
        recorded = self._upcoming[self._next]
        if not isinstance(recorded.event, ToolCalled | CodeRan):
            asked = Entry(NoteTaken(text="runs a model's code", author="replay"))
            raise Divergence(recorded, asked)
        return recorded.event

    @property
    def exhausted(self) -> bool:
        """Whether the record has nothing more that a search decides."""
        return self._peek() is None

    def reopened(self) -> bool:
        """Whether the record goes on after the search's end: somebody took the run up again."""
        self._skip()
        return self._state.finished is None and self._next < len(self._upcoming)

    def finish(self) -> None:
        """To be called when the search has nothing more to add.

        Raises:
            Divergence: the record has more that a search decides.
        """
        self._skip()
        if self._next < len(self._upcoming):
            raise Divergence(self._upcoming[self._next], None)

    def stage(self, name: str, step: Callable[..., Returned], *args: Any) -> Returned:
        """Runs a step; scores are handed on in the order in which they once arrived."""
        answer = step(*args)
        if name != "score":
            return answer
        scores = cast("Iterator[Scored | Rejection]", answer)
        return cast("Returned", self._in_recorded_order(scores))

    def _in_recorded_order(
        self, answers: Iterator[Scored | Rejection]
    ) -> Iterator[Scored | Rejection]:
        places = {
            record.envelope.trial: place
            for place, record in enumerate(self._upcoming)
            if isinstance(record.event, TrialScored | TrialRejected)
        }
        last = len(self._upcoming)
        yield from sorted(answers, key=lambda answer: places.get(_number(answer), last))

    def _peek(self) -> Event | None:
        position = self._next
        while position < len(self._upcoming):
            event = self._upcoming[position].event
            if not _is_input(event):
                return event
            position += 1
        return None

    def _skip(self) -> None:
        """Takes over what no search decides."""
        while self._next < len(self._upcoming) and _is_input(self._upcoming[self._next].event):
            self._take()

    def _take(self) -> None:
        self._state = fold_records([self._upcoming[self._next]], self._state)
        self._next += 1


def _is_input(event: Event) -> bool:
    if isinstance(event, NoteTaken):
        return event.author == CACHE
    return isinstance(event, _PROCESS_EVENTS)


def _same(recorded: Record, entry: Entry) -> bool:
    envelope, event = recorded
    if (envelope.round, envelope.trial) != (entry.round, entry.trial):
        return False
    return payload_of(comparable(event)) == payload_of(comparable(entry.event))


def comparable(event: Event) -> Event:
    """`event` without what depends on the state of a cache: an answer is the same from anywhere."""
    if isinstance(event, TrialScored):
        return event.model_copy(update={"from_cache": False})
    return event


def _number(answer: Scored | Rejection) -> int:
    return answer.survivor.trial.number if isinstance(answer, Scored) else answer.number
