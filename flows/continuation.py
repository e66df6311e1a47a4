"""A round taken up in its middle: what it had done is done again from the record, then it goes on.

Nothing is asked twice: a language model's answers come from the log up to where it ends, and what
was decided is compared, not appended.
"""

from collections.abc import Sequence
from datetime import datetime

from flows.ledger import Ledger
from flows.rehearsal import Rehearsal
from schemas.events import CodeRan, LLMCalled, RoundStarted, ToolCalled
from storage import Entry, EventLog, State, Store, fold_records
from storage.reading import Record


class Continuation:
    """A `Recorder` that follows the record of the open round to its end, then the ledger."""

    def __init__(self, rehearsal: Rehearsal, ledger: Ledger) -> None:
        self._rehearsal = rehearsal
        self._ledger = ledger

    @property
    def run_id(self) -> str:
        """The run."""
        return self._ledger.run_id

    @property
    def state(self) -> State:
        """What the run knew at this point of its record, or knows."""
        return self._ledger.state if self._rehearsal.exhausted else self._rehearsal.state

    def now(self) -> datetime:
        """The time as the record has it, or the clock."""
        return self._ledger.now() if self._rehearsal.exhausted else self._rehearsal.now()

    def record(self, *entries: Entry) -> None:
        """Compares with the record as far as it goes; appends the rest."""
        for position, entry in enumerate(entries):
            if self._rehearsal.exhausted:
                self._ledger.record(*entries[position:])
                return
            self._rehearsal.record(entry)

    def anchor(self) -> None:
        """Anchors the ledger's head."""
        self._ledger.anchor()

    def put_blob(self, data: bytes) -> str:
        """Keeps a text beside the run; one that is there already costs a look."""
        return self._ledger.put_blob(data)

    def recorded_call(self, request_key: str) -> tuple[LLMCalled, bytes | None] | None:
        """The recorded answer, or None once the record has ended."""
        if self._rehearsal.exhausted:
            return None
        return self._rehearsal.recorded_call(request_key)

    def recorded_step(self) -> ToolCalled | CodeRan | None:
        """The recorded step, or None once the record has ended."""
        return None if self._rehearsal.exhausted else self._rehearsal.recorded_step()


def continue_round(store: Store, ledger: Ledger) -> Continuation:
    """The open round of `ledger`'s run, from its start."""
    log = EventLog.open(store, ledger.run_id)
    records = list(log.iterate())
    start = _start_of_open_round(records)
    rehearsal = Rehearsal(fold_records(records[:start]), records[start:], log.get_blob)
    return Continuation(rehearsal, ledger)


def _start_of_open_round(records: Sequence[Record]) -> int:
    """Position after the last RoundStarted."""
    return max(
        position + 1
        for position, record in enumerate(records)
        if isinstance(record.event, RoundStarted)
    )
