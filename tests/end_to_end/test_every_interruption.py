"""A run that died after any of its events ends, once resumed, where an uninterrupted one ends, and
asks the oracle nothing that its log answers."""

import json
from pathlib import Path

import pytest

from benchmarks.outcome import decided, decided_twice
from flows.ledger import Listener
from flows.requests import ResumeRequest, TuneRequest
from flows.tune import resume, tune
from schemas.errors import LogError
from schemas.evaluation import Evaluation
from schemas.events import Envelope, Event, RunResumed
from schemas.trial import NormalTrial
from storage import EventLog, State
from tasks.evaluators import Full
from tests.end_to_end.cutting import but_export, cut
from tests.end_to_end.files import write_inputs
from tests.end_to_end.made_once import Uninterrupted


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What the oracle was asked: memory or score, and of which trial."""
    questions: list[tuple[str, str]] = []

    def counted(name: str) -> None:
        answer = getattr(Full, name)

        def ask(self: Full, trial: NormalTrial) -> Evaluation:
            questions.append((name, trial.trial_id))
            evaluation: Evaluation = answer(self, trial)
            return evaluation

        monkeypatch.setattr(Full, name, ask)

    counted("memory")
    counted("score")
    return questions


def settled(state: State) -> tuple[set[str], set[str]]:
    """Ids of the trials that have a score, and of all that have a verdict."""
    trials = {t.proposed.trial_id: t.status for t in state.trials.values()}
    scored = {trial for trial, status in trials.items() if status == "scored"}
    return scored, {trial for trial, status in trials.items() if status != "proposed"}


def as_bytes(store: Path, run_id: str) -> str:
    """Trials, budgets and recipe of a run."""
    return json.dumps(decided(EventLog.open(store, run_id)), sort_keys=True)


@pytest.mark.slow
def test_resumed_after_any_event_it_ends_as_if_nothing_had_happened(
    uninterrupted: Uninterrupted, tmp_path: Path, asked: list[tuple[str, str]]
):
    run_id, total = uninterrupted.run_id, len(uninterrupted.records)
    expected = as_bytes(uninterrupted.store, run_id)
    all_scored, _ = settled(uninterrupted.state)
    for events in range(1, total):
        store = tmp_path / str(events)
        cut(uninterrupted, events, store)
        scored, verdicts = settled(EventLog.open(store, run_id).state())
        asked.clear()
        resume(ResumeRequest(run=run_id, store=str(store)), stage=but_export)
        log = EventLog.open(store, run_id)
        records = list(log.iterate())
        assert as_bytes(store, run_id) == expected, f"cut after {events} events"
        assert decided_twice(records) == 0
        assert log.state().incumbent == uninterrupted.state.incumbent
        # One event more than the uninterrupted run has, and all it had before.
        assert sum(isinstance(record.event, RunResumed) for record in records) == 1
        assert len(records) == total + 1
        scores = [trial for question, trial in asked if question == "score"]
        assert sorted(scores) == sorted(all_scored - scored), f"cut after {events} events"
        assert verdicts.isdisjoint(trial for _, trial in asked)


class Died(LogError):
    """Nothing is written to a log that failed: as if the process had died."""


def dies_after(events: int) -> Listener:
    """A listener with which a search ends after so many events, as if its process had died."""
    seen = 0

    def listener(event: Event, at: Envelope) -> None:
        nonlocal seen
        seen += 1
        if seen == events:
            raise Died("died")

    return listener


@pytest.mark.parametrize("events_a_life", [2, 3])
def test_a_run_whose_every_process_dies_at_once_gets_there(tmp_path: Path, events_a_life: int):
    workload, cluster = write_inputs(tmp_path)
    request = TuneRequest(
        workload=workload,
        target_cluster=cluster,
        store=str(tmp_path / "whole"),
        mode="dry",
        gemm_backend="tile",
        seed_budget=8,
    )
    expected = as_bytes(tmp_path / "whole", tune(request, stage=but_export))
    store, lives = tmp_path / "store", 1
    with pytest.raises(Died):
        tune(request.model_copy(update={"store": str(store)}), listeners=[dies_after(1)])
    again = ResumeRequest(run="latest", store=str(store))
    while True:
        try:
            run_id = resume(again, stage=but_export, listeners=[dies_after(events_a_life)])
            break
        except Died:
            lives += 1
    assert lives > 6
    assert as_bytes(store, run_id) == expected
    assert decided_twice(list(EventLog.open(store, run_id).iterate())) == 0
