"""Made-up metrics: deterministic, labelled, and moved by levers as real ones are."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projection.legality import LegalSpace
from schemas.search import SearchSpec
from tasks.inputs import Inputs
from tasks.synthetic import jitter
from tests.builders import cluster, small_moe
from tests.tasks.seeds import mixtral_inputs, numbered

SMALL = Inputs(small_moe(), cluster(), SearchSpec(mode="dry", gemm_backend="tile"))
SPACE = LegalSpace(SMALL.workload, SMALL.cluster, SMALL.search)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, SPACE.count() - 1))
def test_every_legal_trial_gets_the_same_whole_synthetic_answer_twice(index: int):
    trial = SPACE[index]
    first, second = (SMALL.evaluator().score(trial) for _ in range(2))
    assert first == second
    assert (first.source, first.provenance) == ("dry", "synthetic")
    assert first.warnings[0].startswith("synthetic:")
    assert sum(first.memory_breakdown_gb.values()) == pytest.approx(first.memory_per_gpu_gb)
    assert sum(first.time_breakdown_ms.values()) == pytest.approx(first.iteration_ms)
    tokens = trial.gbs * SMALL.workload.seq_length
    assert first.tokens_per_s_per_gpu == pytest.approx(
        tokens / (first.iteration_ms / 1000) / SMALL.cluster.world_size
    )


@given(st.text("0123456789abcdef", min_size=16, max_size=16))
def test_the_spread_between_trials_is_small(trial_id: str):
    assert 0.98 <= jitter(trial_id) <= 1.02


@pytest.mark.parametrize(
    ("lever", "memory", "speed"),
    [
        ({"mbs": 1}, -1, -1),
        ({"recompute_granularity": "full", "recompute_num_layers": 2}, -1, -1),
        ({"fp8": "hybrid"}, 0, 1),
        ({"use_turbo_deepep": True}, 0, 1),
        ({"use_distributed_optimizer": False}, 1, 0),
    ],
)
def test_levers_move_the_numbers_the_way_they_really_would(
    lever: dict[str, object], memory: int, speed: int
):
    workload = small_moe(ep=4, pp=2, mbs=2, gbs=256)
    inputs = Inputs(workload, cluster(), SearchSpec(mode="dry", gemm_backend="tile"))
    evaluator = inputs.evaluator()
    before = evaluator.score(inputs.workload.baseline)
    after = evaluator.score(numbered(1, inputs.workload, **lever).trial)
    difference = after.memory_per_gpu_gb - before.memory_per_gpu_gb
    assert (difference > 0) - (difference < 0) == memory
    spread = jitter(after.trial_id) / jitter(before.trial_id)
    gain = after.tokens_per_s_per_gpu * spread / before.tokens_per_s_per_gpu - 1
    assert (gain > 1e-6) - (gain < -1e-6) == speed


def test_memory_real_projects_memory_and_makes_up_time():
    inputs = mixtral_inputs(mode="memory-real")
    trial = numbered(1, inputs.workload, mbs=1).trial
    answer = inputs.evaluator().score(trial)
    projected = inputs.oracle().memory(trial)
    assert answer.memory_by_rank_gb == projected.memory_by_rank_gb
    assert answer.fits == projected.fits
    assert (answer.source, answer.provenance) == ("memory_real", "synthetic")
    assert answer.time_breakdown_ms == {"synthetic": answer.iteration_ms}
    assert any(warning.startswith("synthetic: time") for warning in answer.warnings)
