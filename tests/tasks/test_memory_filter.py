"""Rejections say which rule or number they rest on, and the baseline survives its own size."""

from functools import partial
from typing import Any

import pytest

from projection.legality import check
from schemas.legality import Verdict
from tasks.inputs import Inputs
from tasks.memory_filter import Rejection, Survivor, memory_filter
from tasks.seed_batch import NumberedTrial
from tests.tasks.seeds import mixtral_inputs, numbered


def judge(inputs: Inputs, trial: NumberedTrial) -> Verdict:
    return check(
        trial.trial,
        inputs.workload,
        inputs.cluster,
        inputs.search,
        proposal=trial.number != 0,
    )


def filtered(*knobs: dict[str, Any], too_big: dict[int, Any] | None = None) -> list[Any]:
    inputs = mixtral_inputs()
    trials = [numbered(n, inputs.workload, **each) for n, each in enumerate(knobs)]
    known = {
        number: numbered(number, inputs.workload, **each).trial
        for number, each in (too_big or {}).items()
    }
    return list(memory_filter(trials, partial(judge, inputs), inputs.evaluator(), known))


def test_a_baseline_that_does_not_fit_survives_and_says_so():
    (baseline,) = filtered({})
    assert isinstance(baseline, Survivor)
    assert not baseline.fits


def test_a_trial_that_does_not_fit_is_rejected_with_its_numbers():
    _, rejected = filtered({}, {"pp": 2})
    assert isinstance(rejected, Rejection)
    assert rejected.code == "does_not_fit"
    assert rejected.evaluation is not None
    assert rejected.evaluation.source == "memory_only"
    assert rejected.evaluation.tokens_per_s_per_gpu is None
    needed, cap = rejected.numbers["memory_per_gpu_gb"], rejected.numbers["cap_gb"]
    assert needed == rejected.evaluation.memory_per_gpu_gb
    assert rejected.numbers["over_gb"] == pytest.approx(needed - cap)
    assert f"{needed:.1f} GB" in rejected.reason


def test_a_trial_that_fits_survives():
    _, survivor = filtered({}, {"mbs": 1})
    assert isinstance(survivor, Survivor)
    assert survivor.fits


def test_a_larger_micro_batch_than_one_that_does_not_fit_is_not_even_projected():
    _, inferred = filtered({}, {"mbs": 4})
    assert inferred.code == "implied_oom"
    assert inferred.inferred_from == 0
    assert inferred.evaluation is None
    assert "mbs 2 → 4" in inferred.reason


def test_what_an_earlier_process_found_too_big_implies_as_well():
    _, inferred = filtered({}, {"pp": 2, "mbs": 4}, too_big={7: {"pp": 2}})
    assert inferred.inferred_from == 7


def test_an_illegal_trial_carries_its_first_code_and_every_reason():
    _, illegal = filtered({}, {"tp": 3})
    assert illegal.code == "world_not_tiled"
    assert "the cluster has 32" in illegal.reason
    assert illegal.reason.count(";") >= 1


def test_what_only_a_proposal_may_not_do_is_let_pass_in_a_file():
    """Recomputation with a split backward pass: a file that says so is projected."""
    inputs = mixtral_inputs()
    knobs = {
        "pp_schedule": "zero-bubble",
        "recompute_granularity": "full",
        "recompute_num_layers": 14,
    }
    verdicts = [
        next(
            memory_filter(
                [numbered(number, inputs.workload, **knobs)],
                partial(judge, inputs),
                inputs.evaluator(),
                {},
            )
        )
        for number in (0, 1)
    ]
    assert isinstance(verdicts[0], Survivor)
    assert isinstance(verdicts[1], Rejection)


def test_verdicts_come_one_by_one():
    inputs = mixtral_inputs()

    class Counting:
        def __init__(self) -> None:
            self.asked = 0

        def memory(self, trial: Any) -> Any:
            self.asked += 1
            return inputs.evaluator().memory(trial)

        def score(self, trial: Any) -> Any:
            raise AssertionError("the filter asks for memory only")

    counting = Counting()
    trials = [numbered(n, inputs.workload, mbs=1, vpp=v) for n, v in enumerate((1, 2, 7))]
    stream = memory_filter(trials, partial(judge, inputs), counting, {})
    next(stream)
    assert counting.asked == 1
