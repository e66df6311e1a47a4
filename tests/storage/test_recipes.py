"""What the runs of a store know of a question: best first, each once, nothing that is not so."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from schemas.errors import DamagedLog
from schemas.evaluation import SignatureHashes
from schemas.events import RunStarted, TrialInvalidated, TrialProposed
from schemas.search import SearchSpec
from storage import Entry, EventLog, Store, list_runs
from storage.layout import events_prefix
from storage.recipes import Known, KnownRecipes, Question, spec_of_run
from tests.storage.builders import (
    RUN,
    SIGNATURE,
    Clock,
    proposed,
    rejected,
    round_started,
    scored,
    started,
    trial_number,
    write,
)
from tests.storage.lineages import CHILD, fork, llm_called, parent_in, unflushed

QUESTION = Question(signature=SIGNATURE, source="simulate", memory_regime="config")
ELSEWHERE = SignatureHashes(model="1" * 16, cluster="9" * 16, stack="3" * 16)


def name(day: int) -> str:
    return f"202603{day:02d}t000000-000000-aaaaaaaa"


def run_of(
    root: Path,
    day: int,
    scores: dict[int, float | None],
    spec: RunStarted | None = None,
    proposals: dict[int, TrialProposed] | None = None,
    **evaluation: object,
) -> str:
    """A run on a day of March that scored configurations so; None: rejected. Anchored, open."""
    clock = Clock(datetime(2026, 3, day, tzinfo=UTC))
    with EventLog.create(unflushed(root), name(day), clock=clock) as log:
        entries = [Entry(spec or started()), Entry(round_started(len(scores)), 0)]
        for trial, (number, speed) in enumerate(scores.items()):
            entries.append(Entry((proposals or {}).get(number, proposed(number)), 0, trial))
            verdict = scored(number, tokens_per_s_per_gpu=speed, **evaluation)
            entries.append(Entry(rejected(number) if speed is None else verdict, 0, trial))
        write(log, [entries])
        log.anchor_head()
    return name(day)


def told(root: Path) -> list[tuple[str, int, float]]:
    """Run, trial and tokens/s/GPU of what is known, in order."""
    return [
        (known.run_id, known.trial.number, known.tokens_per_s_per_gpu) for known in known_in(root)
    ]


def known_in(root: Path) -> list[Known]:
    return list(KnownRecipes(Store.at(root), QUESTION))


def test_the_trials_of_all_runs_are_told_best_first(tmp_path: Path):
    run_of(tmp_path, 1, {0: 10.0, 1: 50.0, 2: 30.0, 3: None})
    run_of(tmp_path, 2, {4: 40.0, 5: 60.0, 6: 20.0})
    assert told(tmp_path) == [
        (name(2), 1, 60.0),
        (name(1), 1, 50.0),
        (name(2), 0, 40.0),
        (name(1), 2, 30.0),
        (name(2), 2, 20.0),
        (name(1), 0, 10.0),
    ]


def test_a_configuration_is_told_once_of_the_oldest_run_that_had_its_score(tmp_path: Path):
    run_of(tmp_path, 2, {1: 50.0, 2: 40.0})
    run_of(tmp_path, 1, {3: 20.0, 1: 50.0})
    run_of(tmp_path, 3, {1: 50.0, 3: 20.0})
    assert told(tmp_path) == [(name(1), 1, 50.0), (name(2), 1, 40.0), (name(1), 0, 20.0)]


def test_a_log_is_read_only_when_its_best_is_next(tmp_path: Path):
    run_of(tmp_path, 1, {0: 10.0})
    run_of(tmp_path, 2, {1: 60.0, 2: 5.0})
    (segment,) = (tmp_path / events_prefix(name(1))).iterdir()
    segment.write_bytes(b"never opened")
    recipes = KnownRecipes(Store.at(tmp_path), QUESTION)
    going = iter(recipes)
    assert next(going).run_id == name(2)
    assert recipes.passed_over == []
    assert [known.tokens_per_s_per_gpu for known in going] == [5.0]
    (reason,) = recipes.passed_over
    assert reason.startswith(f"run {name(1)}, event 0: segment 000000000000.parquet is torn")


@pytest.mark.parametrize(
    "spec",
    [
        started(search=SearchSpec(mode="dry")),
        started(search=SearchSpec(mode="memory-real")),
        started(search=SearchSpec(memory_regime="paper")),
        started(signature=ELSEWHERE),
    ],
    ids=["dry", "memory-real", "paper", "another cluster"],
)
def test_what_was_asked_otherwise_never_stands_for_it(tmp_path: Path, spec: RunStarted):
    run_of(tmp_path, 1, {0: 99.0}, spec)
    run_of(tmp_path, 2, {1: 1.0})
    recipes = KnownRecipes(Store.at(tmp_path), QUESTION)
    assert [known.run_id for known in recipes] == [name(2)]
    assert (len(recipes.runs), recipes.scores, len(recipes.all_runs)) == (1, 1, 2)


@pytest.mark.parametrize(
    "odd",
    [
        {"source": "dry"},
        {"source": "memory_real"},
        {"memory_regime": "paper"},
        {"signature": ELSEWHERE},
    ],
)
def test_a_score_that_says_it_answers_another_question_is_not_told(
    tmp_path: Path, odd: dict[str, object]
):
    run_of(tmp_path, 1, {0: 99.0}, **odd)
    assert told(tmp_path) == []


@pytest.mark.parametrize("odd", [{"fits": False}, {"legal": False}])
def test_what_may_not_win_is_not_told(tmp_path: Path, odd: dict[str, object]):
    run_of(tmp_path, 1, {0: 99.0}, **odd)
    assert told(tmp_path) == []


def correct(root: Path, run: str, trial: int, number: int, best: int | None, hour: int) -> None:
    """Records, on 10 March, that `trial` of `run`, configuration `number`, is wrong."""
    clock = Clock(datetime(2026, 3, 10, hour, tzinfo=UTC))
    with EventLog.open(unflushed(root), run, writing=True, clock=clock) as log:
        state = log.state()
        left = None if best is None else state.trials[best]
        event = TrialInvalidated(
            trial_id=trial_number(number).trial_id,
            why="a wrong driver",
            author="a test",
            incumbent=best,
            incumbent_trial_id=None if left is None else left.proposed.trial_id,
            incumbent_tokens_per_s_per_gpu=None if left is None else left.score,
        )
        write(log, [[Entry(event, 0, trial)]])
        log.anchor_head()


def test_a_score_found_wrong_in_its_run_is_not_told_and_the_next_best_is(tmp_path: Path):
    run_of(tmp_path, 1, {0: 10.0, 1: 50.0})
    correct(tmp_path, name(1), 1, 1, 0, 3)
    assert told(tmp_path) == [(name(1), 0, 10.0)]


def test_the_same_score_in_another_run_is_told_as_found_wrong(tmp_path: Path):
    run_of(tmp_path, 1, {0: 10.0, 1: 50.0})
    run_of(tmp_path, 2, {1: 50.0})
    correct(tmp_path, name(1), 1, 1, 0, 3)
    wrong, right = known_in(tmp_path)
    assert (wrong.run_id, right.run_id) == (name(2), name(1))
    assert wrong.found_wrong is not None
    assert (wrong.found_wrong.run_id, right.found_wrong) == (name(1), None)


def test_a_score_made_after_the_correction_stands(tmp_path: Path):
    run_of(tmp_path, 1, {0: 10.0, 1: 50.0})
    correct(tmp_path, name(1), 1, 1, 0, 3)
    run_of(tmp_path, 20, {1: 45.0})
    first, _ = known_in(tmp_path)
    assert (first.run_id, first.found_wrong) == (name(20), None)


def test_what_another_question_found_wrong_is_no_matter_of_this_one(tmp_path: Path):
    run_of(tmp_path, 1, {0: 10.0, 1: 50.0}, started(search=SearchSpec(mode="dry")), source="dry")
    run_of(tmp_path, 2, {1: 50.0})
    correct(tmp_path, name(1), 1, 1, 0, 3)
    (known,) = known_in(tmp_path)
    assert known.found_wrong is None


def test_a_fork_s_inherited_trials_are_its_parent_s_and_counted_once(tmp_path: Path):
    parent_in(tmp_path)
    fork(tmp_path, RUN, 13, CHILD, [])
    recipes = KnownRecipes(Store.at(tmp_path), QUESTION)
    assert {known.run_id for known in recipes} == {RUN}
    assert (len(recipes.runs), recipes.scores) == (2, 3)
    # Without an anchor the summary is made from the events, the parent's and the fork's.
    (tmp_path / "heads" / f"{CHILD}.json").unlink()
    assert KnownRecipes(Store.at(tmp_path), QUESTION).scores == 3


def test_what_a_fork_found_wrong_is_not_believed_of_its_parent(tmp_path: Path):
    parent_in(tmp_path)
    fork(tmp_path, RUN, 13, CHILD, [])
    correct(tmp_path, CHILD, 3, 3, 1, 3)
    wrong, *others = known_in(tmp_path)
    assert (wrong.run_id, wrong.trial.number) == (RUN, 3)
    assert wrong.found_wrong is not None
    assert wrong.found_wrong.run_id == CHILD
    assert [known.found_wrong for known in others] == [None, None]


def test_a_fork_that_begins_anew_has_its_parent_s_corrections_behind_it(tmp_path: Path):
    parent_in(tmp_path)
    correct(tmp_path, RUN, 3, 3, 1, 3)
    fork(tmp_path, RUN, 14, CHILD, [], inherits=False)
    parent, child = list_runs(tmp_path)
    assert list(parent.found_wrong) == [trial_number(3).trial_id]
    assert (child.found_wrong, child.scored, child.inherited_scores) == ({}, 0, 0)


def test_a_model_s_proposal_names_the_model(tmp_path: Path):
    with EventLog.create(unflushed(tmp_path), RUN, clock=Clock()) as log:
        ask = proposed(0, rule="planner").model_copy(update={"call": 0})
        entries = [Entry(started()), Entry(round_started(2), 0), Entry(llm_called(0), 0)]
        entries += [Entry(ask, 0, 0), Entry(scored(0, tokens_per_s_per_gpu=9.0), 0, 0)]
        entries += [Entry(proposed(1), 0, 1), Entry(scored(1, tokens_per_s_per_gpu=8.0), 0, 1)]
        write(log, [entries])
    best, second = known_in(tmp_path)
    assert (best.model, best.is_recipe) == ("a/model", True)
    assert (second.model, second.is_recipe) == (None, False)


def test_a_damaged_run_is_passed_over_and_said_so(tmp_path: Path):
    run_of(tmp_path, 1, {0: 10.0})
    run_of(tmp_path, 2, {1: 90.0})
    for path in (tmp_path / events_prefix(name(2))).iterdir():
        path.unlink()
    recipes = KnownRecipes(Store.at(tmp_path), QUESTION)
    assert [known.run_id for known in recipes] == [name(1)]
    assert recipes.passed_over == [f"run {name(2)}, event 0: is missing"]


def test_an_empty_store_knows_nothing(tmp_path: Path):
    recipes = KnownRecipes(Store.at(tmp_path / "nowhere"), QUESTION)
    assert (list(recipes), recipes.runs, recipes.scores, recipes.passed_over) == ([], [], 0, [])


def test_the_spec_of_a_run_or_a_fork_is_read_from_its_first_event(tmp_path: Path):
    parent_in(tmp_path)
    fork(tmp_path, RUN, 13, CHILD, [])
    backend = Store.at(tmp_path).backend
    for run in (RUN, CHILD):
        assert spec_of_run(backend, run) == EventLog.open(tmp_path, run).state().spec
    (segment,) = (tmp_path / events_prefix(CHILD)).iterdir()
    segment.write_bytes(segment.read_bytes()[:100])
    with pytest.raises(DamagedLog, match=CHILD):
        spec_of_run(backend, CHILD)


def test_an_anchored_summary_of_the_version_before_is_made_anew(tmp_path: Path):
    run_of(tmp_path, 1, {0: 10.0, 1: 50.0})
    correct(tmp_path, name(1), 1, 1, 0, 3)
    head = tmp_path / "heads" / f"{name(1)}.json"
    (before,) = list_runs(tmp_path)
    anchor = json.loads(head.read_text())
    for field in ("source", "memory_regime", "inherited_scores", "found_wrong"):
        del anchor["summary"][field]
    head.write_text(json.dumps({**anchor, "summary_version": 2, "sha256": None}))
    assert list_runs(tmp_path) == [before]
    assert told(tmp_path) == [(name(1), 0, 10.0)]
