"""Breakdowns add up for every legal trial of three workloads, none left out."""

import pytest

from projection.legality import LegalSpace
from projection.oracle import Oracle
from schemas.cluster import Cluster
from schemas.evaluation import SignatureHashes
from schemas.search import SearchSpec
from schemas.workload import Workload
from tests.builders import cluster, small_dense, small_latent, small_moe

SIGNATURE = SignatureHashes(model="0" * 16, cluster="0" * 16, stack="0" * 16)
TILE = SearchSpec(gemm_backend="tile")


def apart(parts: dict[str, float], whole: float | None) -> float:
    """Relative difference of a breakdown's sum from what it breaks down."""
    assert whole is not None
    return abs(sum(parts.values()) - whole) / whole


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "on", "at_least"),
    [
        (small_dense(), cluster(2, gpus_per_node=1), 1_500),
        (small_moe(), cluster(1, gpus_per_node=2), 20_000),
        (small_latent(), cluster(1, gpus_per_node=1), 500),
    ],
    ids=["dense, two nodes", "moe, one node", "latent attention, one GPU"],
)
def test_every_legal_trial_adds_up(workload: Workload, on: Cluster, at_least: int) -> None:
    oracle = Oracle(workload, on, TILE, signature=SIGNATURE)
    space = LegalSpace(workload, on, TILE)
    assert space.count() >= at_least
    seen = 0
    for trial in space:
        result = oracle.project(trial)
        assert result.legal, result.reason
        time, memory = result.time_breakdown_ms, result.memory_breakdown_gb
        assert apart(time, result.iteration_ms) < 1e-9
        assert apart(memory, result.memory_per_gpu_gb) < 1e-9
        assert min(time.values()) >= 0
        assert min(memory.values()) >= 0
        seen += 1
    assert seen == space.count()
