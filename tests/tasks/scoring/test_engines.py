"""Every engine answers as this process does, each trial once, or ends in one error.

The clusters are real ones, of two workers on this machine.
"""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.errors import EnvironmentMissing
from tasks.inputs import Inputs
from tasks.scoring import Engine, ScoringLost
from tasks.scoring.pieces import LARGEST
from tasks.scoring.processes import Processes
from tasks.scoring.question import Question, question
from tests.tasks.scoring.batches import DENSE, MOE, asking, batch_of, written, written_here
from tests.tasks.scoring.evaluators import Crashes, CrashesObstinately, DiesOnce
from tests.tasks.scoring.running import Clusters

pytestmark = pytest.mark.whole

ENGINES = ("processes", *(pytest.param(name, marks=pytest.mark.slow) for name in ("dask", "ray")))


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, clusters: Clusters) -> Iterator[Engine]:
    if request.param != "processes":
        yield clusters[request.param]
        return
    pool = Processes(2)
    yield pool
    pool.close()


@pytest.mark.parametrize("inputs", [DENSE, MOE], ids=["dense", "moe"])
def test_every_trial_gets_the_answer_this_process_gives(engine: Engine, inputs: Inputs):
    trials = batch_of(inputs)
    answers = list(engine.score(question(inputs), trials))
    assert len({said.legal for _, said in answers}) == 2
    assert written(answers) == written_here(inputs, trials)


def test_a_batch_that_is_abandoned_leaves_nothing_for_the_next(engine: Engine):
    trials = batch_of(MOE)
    abandoned = engine.score(question(MOE), trials)
    next(abandoned)
    del abandoned
    gc.collect()
    few = trials[:9]
    assert written(engine.score(question(MOE), few)) == written_here(MOE, few)


@pytest.mark.parametrize(
    ("evaluator", "error", "says"),
    [
        (Crashes, ZeroDivisionError, "a bug at mbs"),
        (CrashesObstinately, RuntimeError, "Obstinate: stays, where it is"),
    ],
)
def test_a_bug_in_a_worker_is_raised_here(
    engine: Engine, evaluator: type[Crashes], error: type[Exception], says: str
):
    with pytest.raises(error, match=says):
        list(engine.score(asking(evaluator), batch_of(MOE)))


def test_a_worker_with_other_software_is_refused_by_name(engine: Engine):
    asked = question(MOE)
    for other, says in (
        (Question({**asked.code, "Refold": "0.0.1"}, asked.software, asked.pickled), "Refold"),
        (Question(asked.code, {**asked.software, "GEMM model": "x 9"}, asked.pickled), "GEMM"),
    ):
        with pytest.raises(EnvironmentMissing, match=f"would score differently: its {says}"):
            list(engine.score(other, batch_of(MOE)))


def test_trials_of_a_worker_that_is_killed_are_asked_again_or_the_loss_is_said(
    engine: Engine, tmp_path: Path
):
    trials = batch_of(MOE)[:100]
    asked = asking(DiesOnce, MOE, trials[60].trial_id, tmp_path / "died")
    arrived = []
    answers = engine.score(asked, trials)
    if isinstance(engine, Processes):
        with pytest.raises(ScoringLost, match=r"ended \(signal 9\) with trials in hand"):
            arrived.extend(answers)
    else:
        arrived.extend(answers)
        assert len(arrived) == len(trials)
    numbers = [index for index, _ in arrived]
    assert len(set(numbers)) == len(numbers)
    assert set(written(arrived)) <= set(written_here(MOE, trials))
    assert (tmp_path / "died").exists()


@pytest.mark.parametrize("num_trials", [0, 1, LARGEST + 1])
def test_a_batch_of_any_length_is_answered(num_trials: int):
    pool = Processes(2)
    trials = batch_of(MOE)[:num_trials]
    assert written(pool.score(question(MOE), trials)) == written_here(MOE, trials)
    pool.close()
