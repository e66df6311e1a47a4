"""Scores stream, known ones are not asked again, and a pool answers as one process does."""

import multiprocessing
import os
from functools import partial
from itertools import islice

import pytest
from tasks.score_pool import CHUNK, PAYS_FROM, best_way_to_score, score_in_pool, workers_worth

from projection.legality import LegalSpace
from schemas.evaluation import Evaluation
from schemas.search import SearchSpec
from schemas.trial import NormalTrial
from tasks.inputs import Inputs
from tasks.memory_filter import Rejection, Survivor
from tasks.score import Scored, one_by_one, score
from tests.builders import cluster, small_moe
from tests.tasks.seeds import mixtral_inputs, numbered


def survivors(inputs: Inputs, *mbs: int) -> list[Survivor]:
    trials = [numbered(n, inputs.workload, mbs=m) for n, m in enumerate(mbs)]
    return [Survivor(trial, ("a rule's warning",), fits=True) for trial in trials]


def nothing_known(_: NormalTrial) -> Evaluation | None:
    return None


def test_a_score_carries_the_rules_warnings_and_the_cache_keeps_the_oracles_answer():
    inputs = mixtral_inputs()
    evaluator = inputs.evaluator()
    (scored,) = score(survivors(inputs, 1), nothing_known, one_by_one(evaluator))
    assert isinstance(scored, Scored)
    assert not scored.from_cache
    assert scored.evaluation.warnings[0] == "a rule's warning"
    assert scored.answer == evaluator.score(scored.survivor.trial.trial)


def test_what_is_known_is_not_asked_again():
    inputs = mixtral_inputs()
    both = survivors(inputs, 1, 2)
    remembered = inputs.evaluator().score(both[0].trial.trial)

    def known(trial: NormalTrial) -> Evaluation | None:
        return remembered if trial == both[0].trial.trial else None

    asked: list[NormalTrial] = []

    def score_many(trials):  # type: ignore[no-untyped-def]
        asked.extend(trials)
        return one_by_one(inputs.evaluator())(trials)

    answers = list(score(both, known, score_many))
    assert [answer.from_cache for answer in answers if isinstance(answer, Scored)] == [True, False]
    assert asked == [both[1].trial.trial]


def test_an_answer_is_there_before_the_next_is_computed():
    inputs = mixtral_inputs()
    computed = []

    class Evaluator:
        def memory(self, trial: NormalTrial) -> Evaluation:
            raise AssertionError("scoring asks for scores")

        def score(self, trial: NormalTrial) -> Evaluation:
            computed.append(trial.mbs)
            return inputs.evaluator().score(trial)

    answers = score(survivors(inputs, 1, 2), nothing_known, one_by_one(Evaluator()))
    next(answers)
    assert computed == [1]


def test_what_the_oracle_finds_impossible_is_a_rejection():
    inputs = mixtral_inputs()
    impossible = Survivor(numbered(3, inputs.workload, tp=3), (), fits=True)
    (answer,) = score([impossible], nothing_known, one_by_one(inputs.evaluator()))
    assert isinstance(answer, Rejection)
    assert answer.number == 3
    assert answer.reason


@pytest.mark.parametrize("num_trials", [1, 3 * CHUNK + 5])
def test_a_pool_gives_every_trial_the_answer_this_process_gives(num_trials: int):
    inputs = Inputs(small_moe(), cluster(), SearchSpec(gemm_backend="tile"))
    space = LegalSpace(inputs.workload, inputs.cluster, inputs.search)
    trials = list(islice(space, 0, 50 * num_trials, 50))
    expected = dict(one_by_one(inputs.evaluator())(trials))
    assert dict(score_in_pool(inputs.fresh_evaluator(), 2, trials)) == expected
    assert multiprocessing.active_children() == []


class Crashes:
    """An evaluator with a bug."""

    def memory(self, trial: NormalTrial) -> Evaluation:
        raise NotImplementedError

    def score(self, trial: NormalTrial) -> Evaluation:
        raise ZeroDivisionError(f"a bug at mbs {trial.mbs}")


def test_a_bug_in_a_worker_is_raised_here_and_leaves_no_process():
    trials = [s.trial.trial for s in survivors(mixtral_inputs(), 1, 2)]
    with pytest.raises(ZeroDivisionError, match="a bug at mbs 1"):
        list(score_in_pool(Crashes, 2, trials))
    assert multiprocessing.active_children() == []


def test_a_pool_that_is_abandoned_leaves_no_process():
    inputs = mixtral_inputs()
    trials = [s.trial.trial for s in survivors(inputs, *[1] * 5 * CHUNK)]
    answers = score_in_pool(inputs.fresh_evaluator(), 2, trials)
    next(answers)
    answers.close()  # type: ignore[attr-defined]
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
def test_a_pool_is_for_batches_that_pay_for_it(num_trials: int, cpus: int, workers: int):
    assert workers_worth(num_trials, cpus) == workers


def test_a_seed_batch_is_scored_in_this_process():
    inputs = mixtral_inputs()
    way = best_way_to_score(inputs.evaluator(), partial(os.abort), 30)
    trials = [s.trial.trial for s in survivors(inputs, 1)]
    assert len(list(way(trials))) == 1
