"""The points of a recorded run at which a planner proposes, each with what the run knew there."""

from collections.abc import Iterable
from dataclasses import dataclass

from schemas.events import LLMCalled, RoundFinished
from storage import State, fold_records
from storage.reading import Record
from tasks.llm.planner import PLANNER


@dataclass(frozen=True, slots=True)
class Decision:
    """One planner decision."""

    run_id: str
    state: State
    """Everything the run knew before the planner was asked."""
    call: LLMCalled | None
    """The call that was made and answered; None: the end of a run that asked no planner."""


def planner_decisions(run_id: str, records: Iterable[Record]) -> list[Decision]:
    """The run's own planner decisions, in order: one per answered call.

    A run that asked no planner has one decision, the end of its last finished round: there a
    planner would have been asked next. Events a fork has from its parent are the parent's.

    Raises:
        DamagedLog: an event cannot follow those before it.
    """
    found: list[Decision] = []
    unasked: Decision | None = None
    state: State | None = None
    stretch: list[Record] = []
    for record in records:
        event = record.event
        if (
            isinstance(event, LLMCalled)
            and event.role == PLANNER
            and event.answer_blob is not None
            and record.envelope.run_id == run_id
        ):
            state, stretch = fold_records(stretch, state), []
            found.append(Decision(run_id, state, event))
        stretch.append(record)
        if isinstance(event, RoundFinished):
            state, stretch = fold_records(stretch, state), []
            unasked = Decision(run_id, state, None)
    return found or ([] if unasked is None else [unasked])
