"""When an engine is started, and what becomes of it."""

import multiprocessing
from collections.abc import Iterator

import pytest

from schemas.scoring import Scoring
from tasks.score import one_by_one
from tasks.scoring import Scorer
from tasks.scoring.scorer import PAYS_FROM, workers_worth
from tests.tasks.scoring.batches import MOE, batch_of


@pytest.fixture
def scorer() -> Iterator[Scorer]:
    made = Scorer(Scoring(engine="processes", workers=2))
    yield made
    made.close()
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize(
    ("num_trials", "cpus", "workers"),
    [
        (0, 8, 0),
        (30, 8, 0),
        (PAYS_FROM, 8, 0),
        (2 * PAYS_FROM, 8, 2),
        (2 * PAYS_FROM, 1, 0),
        (100 * PAYS_FROM, 8, 8),
    ],
)
def test_unasked_a_pool_is_for_batches_that_pay_for_it(num_trials: int, cpus: int, workers: int):
    assert workers_worth(num_trials, cpus) == workers


def test_unasked_a_seed_batch_is_scored_in_this_process():
    list(Scorer().score_many(MOE.evaluator(), MOE)(batch_of(MOE)[:30]))
    assert multiprocessing.active_children() == []


def test_batches_of_a_run_share_what_was_started(scorer: Scorer):
    evaluator, trials = MOE.evaluator(), batch_of(MOE)[:12]
    score_many = scorer.score_many(evaluator, MOE)
    expected = dict(one_by_one(evaluator)(trials))
    assert dict(score_many(trials)) == expected
    workers = {child.pid for child in multiprocessing.active_children()}
    assert len(workers) == 2
    assert dict(score_many(trials)) == expected
    assert {child.pid for child in multiprocessing.active_children()} == workers


@pytest.mark.parametrize("num_trials", [0, 1])
def test_nothing_is_started_for_what_cannot_be_shared(scorer: Scorer, num_trials: int):
    trials = batch_of(MOE)[:num_trials]
    assert len(list(scorer.score_many(MOE.evaluator(), MOE)(trials))) == num_trials
    assert multiprocessing.active_children() == []
