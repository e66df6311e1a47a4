"""When an engine is started, and what becomes of it."""

import multiprocessing
from collections.abc import Callable, Iterator

import pytest

from schemas.scoring import Scoring
from tasks.score import one_by_one
from tasks.scoring import Scorer
from tasks.scoring.scorer import PAYS_FROM, workers_worth
from tests.tasks.scoring.batches import MOE, batch_of

pytestmark = pytest.mark.whole


def children() -> set[int | None]:
    return {child.pid for child in multiprocessing.active_children()}


@pytest.fixture
def started() -> Callable[[], set[int | None]]:
    """The processes that were started since the test began: a cluster of other tests may be up."""
    before = children()
    return lambda: children() - before


@pytest.fixture
def scorer(started: Callable[[], set[int | None]]) -> Iterator[Scorer]:
    made = Scorer(Scoring(engine="processes", workers=2))
    yield made
    made.close()
    assert started() == set()


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


def test_unasked_a_seed_batch_is_scored_in_this_process(started: Callable[[], set[int | None]]):
    list(Scorer().score_many(MOE.evaluator(), MOE)(batch_of(MOE)[:30]))
    assert started() == set()


def test_batches_of_a_run_share_what_was_started(
    scorer: Scorer, started: Callable[[], set[int | None]]
):
    evaluator, trials = MOE.evaluator(), batch_of(MOE)[:12]
    score_many = scorer.score_many(evaluator, MOE)
    expected = dict(one_by_one(evaluator)(trials))
    assert dict(score_many(trials)) == expected
    workers = started()
    assert len(workers) == 2
    assert dict(score_many(trials)) == expected
    assert started() == workers


@pytest.mark.parametrize("num_trials", [0, 1])
def test_nothing_is_started_for_what_cannot_be_shared(
    scorer: Scorer, started: Callable[[], set[int | None]], num_trials: int
):
    trials = batch_of(MOE)[:num_trials]
    assert len(list(scorer.score_many(MOE.evaluator(), MOE)(trials))) == num_trials
    assert started() == set()
