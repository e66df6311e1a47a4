"""A budget ends a search early, with an end for every candidate, and the same end when resumed."""

from pathlib import Path
from typing import Any

import pytest

from flows.requests import ResumeRequest
from flows.tune import resume
from storage import EventLog, State
from tests.end_to_end.cutting import but_export, cut, decided
from tests.end_to_end.made_once import Uninterrupted
from tests.end_to_end.searches import request_in, searched


def dry(folder: Path, **budget: Any) -> Uninterrupted:
    """A dry search of up to 12 seeds under `budget`, run to its end."""
    return searched(request_in(folder, budget=budget, mode="dry"))


def unscored(state: State) -> list[str]:
    """Why each candidate that a budget left out was."""
    rejected = [trial.rejected for trial in state.trials.values() if trial.rejected is not None]
    return [rejection.reason for rejection in rejected if rejection.code == "budget_spent"]


def test_performance_calls_are_bounded_and_every_candidate_has_an_end(tmp_path: Path):
    state = dry(tmp_path, max_perf_calls=3).state
    assert state.spent.perf_calls == 3
    assert state.baseline is not None
    assert state.baseline.status == "scored"
    assert state.conservation.in_flight == 0
    says = "max_perf_calls: all 3 performance calls are spent"
    assert set(unscored(state)) == {says}
    assert state.rounds[0].finished is not None
    assert state.rounds[0].finished.why == says
    assert state.finished is not None
    assert state.finished.why == says


def test_no_performance_calls_bound_rounds_of_others_and_none_of_the_seeds(tmp_path: Path):
    state = dry(tmp_path, max_perf_calls=0, max_rounds=0).state
    assert state.spent.perf_calls > 3
    assert unscored(state) == []
    assert state.finished is not None
    assert state.finished.why == "the plan is done"


def test_a_budget_that_suffices_is_not_what_ended_the_search(tmp_path: Path):
    needed = dry(tmp_path / "first").state.spent.perf_calls
    state = dry(tmp_path / "second", max_perf_calls=needed).state
    assert unscored(state) == []
    assert state.finished is not None
    assert state.finished.why == "the plan is done"


def test_without_any_time_the_baseline_alone_is_scored(tmp_path: Path):
    state = dry(tmp_path, max_wall_clock_s=0).state
    assert [n for n, trial in state.trials.items() if trial.status == "scored"] == [0]
    assert len(unscored(state)) == len(state.trials) - 1 > 0
    assert state.finished is not None
    assert "max_wall_clock_s: all 0 s are spent" in state.finished.why


@pytest.mark.parametrize("budget", [{"max_perf_calls": 3}, {"max_wall_clock_s": 0}])
def test_a_resumed_run_has_what_is_left_of_its_budget(tmp_path: Path, budget: dict[str, Any]):
    whole = dry(tmp_path / "whole", **budget)
    for events in range(1, len(whole.records)):
        store = tmp_path / str(events)
        cut(whole, events, store)
        resume(ResumeRequest(run=whole.run_id, store=str(store)), stage=but_export)
        state = EventLog.open(store, whole.run_id).state()
        assert decided(state) == decided(whole.state), f"cut after {events} events"
        assert state.finished == whole.state.finished
