"""One step on each axis from a configuration: what is asked, and what is said of it."""

import pytest

from projection.legality import LegalSpace, check
from schemas.errors import UserError
from schemas.search import SearchSpec
from schemas.trial import NormalTrial
from storage.exports.knobs import knobs_apart
from tasks.inputs import Inputs
from tasks.sensitivity import CLOSE, Sensitivity, steps_from
from tests.builders import cluster, llama_70b, mixtral_8x22b, small_dense, small_moe

SPEC = SearchSpec(gemm_backend="tile")
MIXTRAL = Inputs(mixtral_8x22b(mbs=1), cluster(4), SPEC)


@pytest.fixture(scope="module")
def around_mixtral() -> Sensitivity:
    return steps_from(MIXTRAL, MIXTRAL.workload.baseline)


@pytest.mark.parametrize("workload", [small_dense(), small_moe(), llama_70b()])
def test_every_step_is_legal_has_its_value_and_is_asked_once(workload) -> None:
    inputs = Inputs(workload, cluster(2 if workload.seq_length == 1024 else 8), SPEC)
    found = steps_from(inputs, workload.baseline)
    oracle = inputs.oracle()
    taken = [step for step in found.steps if step.trial is not None]
    assert len(taken) > 5
    assert len({step.trial.trial_id for step in taken}) == len(taken)
    for step in taken:
        assert getattr(step.trial, step.axis) == step.value != getattr(found.trial, step.axis)
        assert check(step.trial, workload, inputs.cluster, SPEC).legal
        assert step.evaluation == oracle.project(step.trial)
        assert step.trial.gbs == workload.baseline.gbs


def test_gains_are_of_throughput_and_only_of_what_fits(around_mixtral: Sensitivity) -> None:
    base = around_mixtral.start.tokens_per_s_per_gpu
    scored = [step for step in around_mixtral.steps if step.evaluation is not None]
    for step in scored:
        assert (step.gain is not None) == step.evaluation.fits
        if step.gain is not None:
            ratio = step.evaluation.tokens_per_s_per_gpu / base
            assert step.gain == pytest.approx(ratio - 1)
    gains = [step.gain for step in around_mixtral.faster]
    assert gains == sorted(gains, reverse=True)
    assert all(gain > 0 for gain in gains)
    assert all(-CLOSE <= step.gain <= 0 for step in around_mixtral.close)


def test_what_is_not_legal_alone_takes_with_it_what_it_must(around_mixtral: Sensitivity) -> None:
    step = next(step for step in around_mixtral.steps if (step.axis, step.value) == ("vpp", 2))
    apart = knobs_apart(around_mixtral.trial, step.trial)
    assert apart.keys() == {"vpp", "pp_schedule"}
    assert apart["pp_schedule"][0] == "1f1b"


def test_what_no_near_configuration_has_is_refused_with_its_rule(
    around_mixtral: Sensitivity,
) -> None:
    step = next(step for step in around_mixtral.steps if step.axis == "use_torch_fsdp2")
    assert step.trial is None
    assert "exclude each other" in step.refused


def test_pinned_axes_are_held() -> None:
    pinned = SPEC.model_copy(update={"pinned": {"mbs": 1, "fp8": "none"}})
    found = steps_from(Inputs(MIXTRAL.workload, MIXTRAL.cluster, pinned), MIXTRAL.workload.baseline)
    assert {"mbs", "fp8", "gbs"} <= set(found.held)
    assert {step.axis for step in found.steps}.isdisjoint(found.held)


def best_of(inputs: Inputs) -> NormalTrial:
    oracle = inputs.oracle()
    space = LegalSpace(inputs.workload, inputs.cluster, inputs.search)
    scored = ((oracle.project(trial), trial) for trial in space)
    rated = ((e.tokens_per_s_per_gpu, trial) for e, trial in scored if e.fits)
    return max(rated, key=lambda pair: pair[0])[1]


def test_the_best_of_a_whole_space_is_a_peak() -> None:
    fixed = {"recompute_granularity": "none", "fp8": "none", "use_turbo_deepep": False}
    few = SPEC.model_copy(update={"pinned": fixed})
    inputs = Inputs(small_moe(), cluster(1, 4), few)
    found = steps_from(inputs, best_of(inputs))
    assert len(found.steps) > 5
    assert found.faster == ()


def test_what_cannot_run_has_no_surroundings() -> None:
    too_wide = MIXTRAL.workload.baseline.model_copy(update={"pp": 16, "ep": 8})
    with pytest.raises(UserError, match="nothing to step from"):
        steps_from(MIXTRAL, too_wide)
