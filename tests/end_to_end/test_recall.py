"""A search of a known signature begins with the best known recipe, and needs no look-up again."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks.outcome import decided as outcome_of
from flows.forking import fork
from flows.invalidating import invalidate
from flows.replaying import verify_replay
from flows.requests import ForkRequest, ResumeRequest
from flows.tune import resume, tune
from schemas.events import RecipeRecalled, RunStarted
from storage import EventLog, State, Store
from storage.layout import head_key, run_prefix
from storage.verify import verify
from tasks.carry import CARRIED, KNOWN_BEST
from tests.end_to_end.cutting import but_export, cut, decided
from tests.end_to_end.files import write_inputs
from tests.end_to_end.made_once import Uninterrupted
from tests.end_to_end.searches import request_in, searched
from tests.end_to_end.test_every_interruption import Died, dies_after
from tests.flows.inline import refold_inline

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Uninterrupted:
    """A dry search of six seeds in an empty store; its best is not its second trial."""
    return searched(request_in(tmp_path_factory.mktemp("first"), mode="dry", seed_budget=6))


@pytest.fixture
def store(first: Uninterrupted, tmp_path: Path) -> Path:
    return Path(shutil.copytree(first.store, tmp_path / "store"))


@pytest.fixture(scope="module")
def second(first: Uninterrupted, tmp_path_factory: pytest.TempPathFactory) -> Uninterrupted:
    """The same search again, in a copy of that store."""
    return again(first, Path(shutil.copytree(first.store, tmp_path_factory.mktemp("2") / "store")))


def again(first: Uninterrupted, store: Path, **changes: Any) -> Uninterrupted:
    return searched(first.request.model_copy(update={"store": str(store), **changes}))


def ids(state: State) -> list[str]:
    return [trial.proposed.trial_id for trial in state.trials.values()]


def in_a_search_of(folder: Path, **sections: Any) -> dict[str, Any]:
    """A request's files, as `write_inputs` makes them."""
    folder.mkdir()
    workload, cluster = write_inputs(folder, **sections)
    return {"workload": workload, "target_cluster": cluster}


def test_the_seeds_begin_with_it_labelled_so(first: Uninterrupted, second: Uninterrupted):
    best = first.state.best
    assert best is not None
    assert best.number > 1
    recalled = second.state.recalled
    assert recalled is not None
    assert (recalled.run, recalled.trial) == (first.run_id, best.number)
    assert recalled.tokens_per_s_per_gpu == best.score
    assert recalled.scored_at == best.decided_at
    seeded = second.state.trials[1]
    assert seeded.proposed.trial_id == best.proposed.trial_id
    assert (seeded.proposed.rule, seeded.proposed.tag) == (KNOWN_BEST, "known-best")
    assert seeded.proposed.why == (
        f"the best of run {first.run_id}, trial {best.number}, on this signature:"
        f" {best.score:,.0f} tokens/s/GPU"
    )
    assert second.state.incumbent == 1


def test_it_counts_for_no_seed_budget_and_stands_once(first: Uninterrupted, second: Uninterrupted):
    assert len(ids(second.state)) == len(set(ids(second.state)))
    # The plan has it too: what the budget reaches to is the plan without it, and it.
    assert len(second.state.trials) == len(first.state.trials) + 1
    assert set(ids(first.state)) < set(ids(second.state))
    assert second.state.rounds[0].started.planned == 7


def test_it_is_recorded_with_the_run_s_start_or_not_at_all(first: Uninterrupted, store: Path):
    request = first.request.model_copy(update={"store": str(store)})
    with pytest.raises(Died):
        tune(request, stage=but_export, listeners=[dies_after(1)])
    events = [r.event for r in EventLog.open(store, Store.at(store).run_ids()[-1]).iterate()]
    assert [type(event) for event in events] == [RunStarted, RecipeRecalled]


def test_an_empty_store_recalls_nothing(first: Uninterrupted):
    assert first.state.recalled is None
    assert not any(isinstance(record.event, RecipeRecalled) for record in first.records)


def test_it_is_said_in_one_line_and_not_recalled_when_told_so(
    first: Uninterrupted, store: Path, capsys: Capture
):
    capsys.readouterr()
    again(first, store)
    (line,) = [s for s in capsys.readouterr().err.splitlines() if s.startswith("known best")]
    best = first.state.best
    assert best is not None
    assert line == (
        f"known best: {best.score:,.0f} tokens/s/GPU, trial {best.number} of run {first.run_id};"
        " seeded first"
    )
    fresh = again(first, store, recall=False)
    assert "known best" not in capsys.readouterr().err
    assert decided(fresh.state) == decided(first.state)
    assert len(fresh.records) == len(first.records)


@pytest.mark.parametrize("changes", [{"mode": "memory-real"}, {"memory_regime": "paper"}])
def test_what_was_asked_otherwise_is_not_recalled(
    first: Uninterrupted, store: Path, changes: dict[str, Any]
):
    assert again(first, store, seed_budget=1, **changes).state.recalled is None


def test_another_signature_recalls_nothing(first: Uninterrupted, store: Path, tmp_path: Path):
    files = in_a_search_of(tmp_path / "in", optimization={"memory_safety_margin": 0.2})
    assert again(first, store, seed_budget=1, **files).state.recalled is None


def test_the_baseline_itself_is_not_recalled(tmp_path: Path, capsys: Capture):
    request = request_in(tmp_path, mode="dry", seed_budget=1)
    assert searched(request).state.incumbent == 0
    capsys.readouterr()
    assert searched(request).state.recalled is None
    assert "known best" not in capsys.readouterr().err


def test_only_what_this_search_may_ask_for_is_recalled(
    first: Uninterrupted, store: Path, tmp_path: Path
):
    allowed = next(t for t in first.state.ranked() if t.proposed.config.fp8 == "none")
    assert allowed.number != first.state.incumbent
    files = in_a_search_of(tmp_path / "in", optimization={"axes": {"fp8": False}})
    recalled = again(first, store, **files).state.recalled
    assert recalled is not None
    assert recalled.trial_id == allowed.proposed.trial_id


def test_a_score_that_was_found_wrong_is_not_recalled(first: Uninterrupted, store: Path):
    second_best = first.state.ranked()[1]
    assert first.state.incumbent is not None
    invalidate(Store.at(store), first.run_id, first.state.incumbent, "a wrong driver")
    recalled = again(first, store).state.recalled
    assert recalled is not None
    assert recalled.trial_id == second_best.proposed.trial_id


def test_another_workload_file_is_asked_for_the_same_recipe_in_its_own_words(
    first: Uninterrupted, store: Path, tmp_path: Path
):
    files = in_a_search_of(tmp_path / "in", overrides={"micro_batch_size": 1})
    other = again(first, store, seed_budget=1, **files).state
    best = first.state.best
    assert best is not None
    assert other.spec.signature == first.state.spec.signature
    assert other.trials[1].proposed.trial_id == best.proposed.trial_id
    assert other.trials[1].proposed.requested.mbs == 2
    assert best.proposed.requested.mbs is None


def test_interrupted_it_ends_as_if_nothing_had_happened(second: Uninterrupted, tmp_path: Path):
    expected = json.dumps(outcome_of(EventLog.open(second.store, second.run_id)), sort_keys=True)
    for events in range(2, len(second.records), 3):
        store = tmp_path / str(events)  # which holds no other run: nothing can be looked up
        cut(second, events, store)
        resume(ResumeRequest(run=second.run_id, store=str(store)), stage=but_export)
        log = EventLog.open(store, second.run_id)
        assert json.dumps(outcome_of(log), sort_keys=True) == expected, f"after {events} events"


def test_its_decisions_are_made_again_without_the_other_run(second: Uninterrupted, tmp_path: Path):
    alone = tmp_path / "alone"
    for name in (run_prefix(second.run_id), head_key(second.run_id)):
        copy = shutil.copytree if (second.store / name).is_dir() else shutil.copy
        (alone / name).parent.mkdir(parents=True, exist_ok=True)
        copy(second.store / name, alone / name)
    report = verify_replay(Store.at(alone), second.run_id)
    assert report.identical, report.different
    assert report.recorded_inputs == 1
    assert verify(alone, second.run_id).ok


def forked(second: Uninterrupted, tmp_path: Path, **changes: Any) -> State:
    store = Path(shutil.copytree(second.store, tmp_path / "forks"))
    request = ForkRequest(run=second.run_id, store=str(store), out_dir=tmp_path / "out", **changes)
    child = fork(request, stage=but_export)
    assert verify(store, child).ok
    report = verify_replay(Store.at(store), child)
    assert report.identical, report.different
    return EventLog.open(store, child).state()


def test_a_fork_that_inherits_it_begins_with_it(second: Uninterrupted, tmp_path: Path):
    state = forked(second, tmp_path, at_event=1, seed_budget=8)
    assert state.recalled == second.state.recalled
    assert state.trials[1].proposed == second.state.trials[1].proposed
    assert len(state.trials) == 9


def test_a_fork_from_before_it_was_recalled_does_without(
    first: Uninterrupted, second: Uninterrupted, tmp_path: Path
):
    state = forked(second, tmp_path, at_event=0)
    assert state.recalled is None
    assert ids(state) == ids(first.state)


def test_a_fork_that_asks_another_question_carries_its_candidate_only(
    second: Uninterrupted, tmp_path: Path
):
    state = forked(second, tmp_path, settings=("cluster.memory_safety_margin=0.2",))
    assert state.recalled is None
    assert state.trials[1].proposed.trial_id == second.state.trials[1].proposed.trial_id
    assert state.trials[1].proposed.rule == CARRIED
    assert KNOWN_BEST not in {trial.proposed.rule for trial in state.trials.values()}


def test_a_damaged_run_is_said_and_passed_over(first: Uninterrupted, store: Path, capsys: Capture):
    other = again(first, store, recall=False).run_id
    for path in (store / run_prefix(first.run_id) / "events").iterdir():
        path.unlink()
    capsys.readouterr()
    recalled = again(first, store).state.recalled
    assert recalled is not None
    assert recalled.run == other
    assert f"run {first.run_id}, event 0: is missing" in capsys.readouterr().err


def test_show_and_lineage_name_the_run_it_came_from(
    first: Uninterrupted, second: Uninterrupted, capsys: Capture
):
    at = ("--store", second.store)
    best = first.state.incumbent
    shown = refold_inline(capsys, "show", second.run_id, *at).out
    assert f"recalled  trial {best} of {first.run_id}, the best known then" in shown
    lineage = refold_inline(capsys, "lineage", second.run_id, *at)
    assert lineage.code == 0
    assert f"recalled   from trial #{best} of run {first.run_id}, scored 20" in lineage.out
    assert f"refold lineage {first.run_id} --trial {best} says why that one" in lineage.out
    assert all(len(line) <= 100 for line in lineage.out.splitlines())
    told = json.loads(refold_inline(capsys, "lineage", second.run_id, "--json", *at).out)
    assert told["trial"]["recalled_from"]["run_id"] == first.run_id
    summary = json.loads(refold_inline(capsys, "show", second.run_id, "--json", *at).out)
    assert summary["recalled"]["run"] == first.run_id


def test_the_drawn_lineage_names_it_too(second: Uninterrupted, tmp_path: Path, capsys: Capture):
    svg = tmp_path / "why.svg"
    refold_inline(capsys, "lineage", second.run_id, "--svg", svg, "--store", second.store)
    assert second.state.recalled is not None
    assert second.state.recalled.run.rpartition("-")[2] in svg.read_text()
    assert f"trial #{second.state.recalled.trial} of run" in svg.read_text()
