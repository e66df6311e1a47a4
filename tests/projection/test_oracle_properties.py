"""Properties of every evaluation: sums, consistency, and what schedules do to time and memory."""

from itertools import islice

import pytest

from projection.legality import LegalSpace
from projection.oracle import Oracle
from schemas.cluster import Cluster
from schemas.evaluation import Evaluation, SignatureHashes
from schemas.search import SearchSpec
from schemas.workload import Workload
from tests.builders import cluster, deepseek_v3, mixtral_8x22b, small_dense, small_moe

SIGNATURE = SignatureHashes(model="0" * 16, cluster="0" * 16, stack="0" * 16)
TILE = SearchSpec(gemm_backend="tile")


def oracle_of(workload: Workload, on: Cluster) -> Oracle:
    return Oracle(workload, on, TILE, signature=SIGNATURE)


@pytest.mark.parametrize(
    ("workload", "on", "pinned"),
    [
        (small_dense(), cluster(1), {}),
        (small_moe(), cluster(2), {}),
        (mixtral_8x22b(), cluster(8), {"pp": 1}),
        (mixtral_8x22b(), cluster(8), {"pp": 4, "tp": 1}),
        (deepseek_v3(), cluster(32), {"pp": 16}),
    ],
    ids=["small-dense", "small-moe", "mixtral-flat", "mixtral-pipelined", "deepseek"],
)
def test_legal_trials_add_up(
    workload: Workload, on: Cluster, pinned: dict[str, int | str | bool]
) -> None:
    oracle = oracle_of(workload, on)
    space = LegalSpace(workload, on, TILE.model_copy(update={"pinned": pinned}))
    trials = list(islice(space, 0, 30_000, 211))
    assert len(trials) > 30
    for trial in trials:
        result = oracle.project(trial)
        assert result.legal, (result.reason, trial)
        assert sum(result.time_breakdown_ms.values()) == result.iteration_ms
        assert min(result.time_breakdown_ms.values()) >= 0
        assert sum(result.memory_breakdown_gb.values()) == result.memory_per_gpu_gb
        assert min(result.memory_breakdown_gb.values()) >= 0
        assert 0 < (result.mfu or 0) < 1
        assert 0 <= (result.bubble_ratio or 0) < 1
        assert set(result.comm_breakdown) == set(result.comm_algorithms)


def by_schedule() -> dict[str, Evaluation]:
    oracle = oracle_of(mixtral_8x22b(mbs=1, gbs=256), cluster(4))
    base = mixtral_8x22b(mbs=1, gbs=256).baseline
    chunks = {"1f1b": 1, "zero-bubble": 1, "interleaved": 2}
    chunks |= {"zbv-formatted": 2, "zbv-greedy-half": 2, "zbv-greedy-min": 2}
    return {
        name: oracle.project(base.model_copy(update={"pp_schedule": name, "vpp": vpp}))
        for name, vpp in chunks.items()
    }


def test_schedules_differ_in_bubble_and_in_what_they_hold() -> None:
    results = by_schedule()
    bubble = {name: result.bubble_ratio or 0 for name, result in results.items()}
    assert bubble["zbv-formatted"] < bubble["zero-bubble"] < bubble["1f1b"]
    assert bubble["interleaved"] < bubble["1f1b"]
    assert bubble["1f1b"] < bubble["zbv-greedy-min"]
    held = {name: result.memory_per_gpu_gb or 0 for name, result in results.items()}
    assert held["zbv-greedy-min"] < held["zbv-greedy-half"] < held["1f1b"]
    assert held["1f1b"] < held["interleaved"]


def test_split_backward_keeps_weight_gradient_operands_and_levels_the_ranks() -> None:
    results = by_schedule()
    assert "deferred_weight_gradients" not in results["1f1b"].memory_breakdown_gb
    assert results["zero-bubble"].memory_breakdown_gb["deferred_weight_gradients"] > 0
    spread = {
        name: max(r.total_gb for r in result.memory_by_rank_gb)
        - min(r.total_gb for r in result.memory_by_rank_gb)
        for name, result in results.items()
    }
    assert spread["zbv-formatted"] < 0.1 * spread["1f1b"]


def test_the_work_of_the_busiest_rank_is_the_same_under_every_schedule_of_one_chunk() -> None:
    results = by_schedule()
    for name in ("gemm", "attention", "elementwise"):
        one, other = (results[s].time_breakdown_ms[name] for s in ("1f1b", "zero-bubble"))
        assert one == pytest.approx(other)
