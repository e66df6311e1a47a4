"""What may end a search before its plan is done: the budgets that bound a run as a whole.

The clock is asked through the run's `Recorder`, and by the log. That it ended a search is an event,
so that replaying or resuming a run needs no clock to know of it.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from flows.ledger import Recorder
from schemas.events import BudgetSpent
from storage import Entry, State
from tasks.finish import BUDGET_SPENT


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a run may still spend, as of its last event. None: as much as it likes."""

    perf_calls: int | None
    deadline: datetime | None


def allowance(state: State) -> Allowance:
    """What is left of `max_perf_calls` and `max_wall_clock_s`."""
    budget, spent = state.spec.search.budget, state.spent
    calls = None
    if budget.max_perf_calls:
        calls = max(0, budget.max_perf_calls - spent.perf_calls)
    deadline = None
    if budget.max_wall_clock_s is not None:
        left_s = budget.max_wall_clock_s - spent.wall_clock_s
        deadline = state.last_at + timedelta(seconds=left_s)
    return Allowance(calls, deadline)


def recorded_stop(state: State) -> str | None:
    """The budget that has cost candidates their score, in words; None: none has."""
    for trial in state.trials.values():
        if trial.rejected is not None and trial.rejected.code == BUDGET_SPENT:
            return trial.rejected.reason
    return None


def what_stops(state: State) -> str | None:
    """The budget that is spent, in words, as the run recorded it or as it follows from its events.

    Nothing stops a run before its baseline, which all others are compared with, is decided.
    """
    recorded = recorded_stop(state)
    if recorded is not None:
        return recorded
    baseline = state.baseline
    if baseline is None or baseline.status == "proposed":
        return None
    if state.stop is not None:
        return state.stop
    if allowance(state).perf_calls == 0:
        calls = state.spec.search.budget.max_perf_calls
        return f"max_perf_calls: all {calls} performance calls are spent"
    return None


def time_is_up(recorder: Recorder) -> bool:
    """Whether the wall clock has passed the deadline; the first time it has, that is recorded."""
    state = recorder.state
    if state.stop is not None:
        return True
    deadline = allowance(state).deadline
    if deadline is None or recorder.now() < deadline:
        return False
    limit = state.spec.search.budget.max_wall_clock_s
    why = f"max_wall_clock_s: all {limit:g} s are spent"
    current = state.open_round
    recorder.record(Entry(BudgetSpent(why=why), None if current is None else current.number))
    return True
