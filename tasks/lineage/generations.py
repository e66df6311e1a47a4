"""The searches a run's events tell of: a fork whose scores do not survive begins one anew.

Within one of them a trial number names one trial, and a call number one call.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas.events import Envelope, LLMCalled, RunForked, TrialProposed
from storage import State, fold_records
from storage.reading import Record


@dataclass(frozen=True, slots=True)
class Generation:
    """One search, as of its last event."""

    state: State
    proposals: dict[int, Envelope] = field(default_factory=dict)
    """By trial number: where it was proposed."""
    calls: dict[int, Envelope] = field(default_factory=dict)
    """By call number."""


def generations(records: Iterable[Record]) -> list[Generation]:
    """The searches of a lineage's events, the first one first; each is a fold, taken on."""
    found: list[Generation] = []
    state: State | None = None
    chunk: list[Record] = []
    for record in records:
        if isinstance(record.event, RunForked) and not record.event.inherits:
            state = fold_records(chunk, state)
            found.append(_generation(state, chunk))
            chunk = []
        chunk.append(record)
    found.append(_generation(fold_records(chunk, state), chunk))
    return found


def _generation(state: State, chunk: Iterable[Record]) -> Generation:
    generation = Generation(state)
    for envelope, event in chunk:
        if isinstance(event, TrialProposed) and envelope.trial is not None:
            generation.proposals[envelope.trial] = envelope
        elif isinstance(event, LLMCalled):
            generation.calls[event.call] = envelope
    return generation
