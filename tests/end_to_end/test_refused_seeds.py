"""Seeds that legality refused are in the run's notes, once, however often it was resumed."""

from pathlib import Path

from flows.requests import ResumeRequest
from flows.tune import resume
from schemas.events import NoteTaken, RoundStarted
from storage import EventLog
from tasks.inputs import resolve_pair
from tasks.seed_plan import plan_seeds, skipped_notes
from tests.end_to_end.cutting import but_export, cut
from tests.end_to_end.files import write_inputs
from tests.end_to_end.made_once import Uninterrupted


def notes_of_seeds(store: Path, run_id: str) -> list[str]:
    state = EventLog.open(store, run_id).state()
    return [note.text for note in state.notes if note.author == "seed plan"]


def test_they_are_noted_as_the_round_starts(uninterrupted: Uninterrupted, tmp_path: Path):
    inputs = resolve_pair(*write_inputs(tmp_path), env={})
    refused = skipped_notes(plan_seeds(inputs.workload, inputs.cluster, inputs.search))
    assert refused
    assert notes_of_seeds(uninterrupted.store, uninterrupted.run_id) == list(refused)
    events = [event for _, event in uninterrupted.records]
    start = next(at for at, event in enumerate(events) if isinstance(event, RoundStarted))
    behind = events[start + 1 : start + 1 + len(refused)]
    assert all(isinstance(event, NoteTaken) for event in behind)


def test_a_resumed_run_does_not_repeat_them(uninterrupted: Uninterrupted, tmp_path: Path):
    events = len(uninterrupted.records) // 2
    store = tmp_path / "store"
    cut(uninterrupted, events, store)
    run_id = resume(ResumeRequest(run=uninterrupted.run_id, store=str(store)), stage=but_export)
    again = notes_of_seeds(store, run_id)
    assert again == notes_of_seeds(uninterrupted.store, uninterrupted.run_id)
