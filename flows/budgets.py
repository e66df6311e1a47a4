"""What may end a search before its plan is done: the budgets that bound a run as a whole.

The clock is read here and by the log alone. A stop is recorded, as rejections and as the round's
end, so that replaying or resuming a run needs no clock to know of it.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from storage import State
from storage.run_ids import now_utc
from tasks.finish import BUDGET_SPENT


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a run may still spend, as of its last event. None: as much as it likes."""

    perf_calls: int | None
    deadline: datetime | None

    def out_of_time(self) -> bool:
        """Whether the wall clock has passed the deadline."""
        return self.deadline is not None and now_utc() >= self.deadline


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
    """The budget that is spent, in words: as the run recorded it, else as of now.

    Nothing stops a run before its baseline, which all others are compared with, is decided.
    """
    recorded = recorded_stop(state)
    if recorded is not None:
        return recorded
    baseline = state.baseline
    if baseline is None or baseline.status == "proposed":
        return None
    budget, left = state.spec.search.budget, allowance(state)
    if left.perf_calls == 0:
        return f"max_perf_calls: all {budget.max_perf_calls} performance calls are spent"
    if left.out_of_time():
        return f"max_wall_clock_s: all {budget.max_wall_clock_s:g} s are spent"
    return None
