"""Each knob moves time the way physics says, on dense and MoE, on one node and on several."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projection.oracle import Oracle
from schemas.cluster import Cluster
from schemas.evaluation import Evaluation, SignatureHashes
from schemas.search import SearchSpec
from schemas.workload import Workload
from tests.builders import cluster, llama_70b, mixtral_8x22b

SIGNATURE = SignatureHashes(model="0" * 16, cluster="0" * 16, stack="0" * 16)
TILE = SearchSpec(gemm_backend="tile")
DENSE = {
    "tp": 8,
    "gbs": 64,
    "use_torch_fsdp2": False,
    "use_distributed_optimizer": True,
    "recompute_granularity": "none",
    "recompute_method": None,
    "recompute_num_layers": 0,
}
CASES: dict[str, tuple[Workload, int, dict[str, Any]]] = {
    "dense, one node": (llama_70b(), 1, DENSE),
    "dense, four nodes": (llama_70b(), 4, DENSE | {"pp": 2}),
    "moe, one node": (mixtral_8x22b(), 1, {"pp": 1, "mbs": 1, "gbs": 64}),
    "moe, four nodes": (mixtral_8x22b(), 4, {"mbs": 1, "gbs": 128}),
}
EITHER = pytest.mark.parametrize("case", CASES)
ALLOWED = 1 + 1e-9


def project(case: str, on: Cluster | None = None, **knobs: Any) -> Evaluation:
    workload, nodes, own = CASES[case]
    oracle = Oracle(workload, on or cluster(nodes), TILE, signature=SIGNATURE)
    result = oracle.project(workload.baseline.model_copy(update=own | knobs))
    assert result.legal, result.reason
    return result


def ms(result: Evaluation) -> float:
    assert result.iteration_ms is not None
    return result.iteration_ms


def rate(result: Evaluation) -> float:
    assert result.tokens_per_s_per_gpu is not None
    return result.tokens_per_s_per_gpu


@given(
    case=st.sampled_from(sorted(CASES)),
    field=st.sampled_from(["node_bw", "pod_bw", "cluster_bw", "node_lat", "pod_lat"]),
    factor=st.floats(1.0, 20.0),
)
@settings(max_examples=24, deadline=None)
def test_a_worse_link_never_speeds_anything_up(case: str, field: str, factor: float) -> None:
    base = cluster(CASES[case][1])
    worse = factor if field.endswith("lat") else 1 / factor
    network = base.network.model_copy(update={field: getattr(base.network, field) * worse})
    slow = project(case, base.model_copy(update={"network": network}))
    assert ms(slow) * ALLOWED >= ms(project(case))


@given(
    case=st.sampled_from(sorted(CASES)),
    fields=st.sampled_from([("clock_mhz", "bf16_tflops", "vector_tflops"), ("hbm_gb_per_s",)]),
    factor=st.floats(1.0, 3.0),
)
@settings(max_examples=16, deadline=None)
def test_a_faster_gpu_of_as_many_units_never_slows_anything(
    case: str, fields: tuple[str, ...], factor: float
) -> None:
    base = cluster(CASES[case][1])
    gpu = base.gpu.model_copy(update={f: getattr(base.gpu, f) * factor for f in fields})
    assert ms(project(case, base.model_copy(update={"gpu": gpu}))) <= ms(project(case)) * ALLOWED


SCHEDULES = [
    ("1f1b", 1, 0.0),
    ("interleaved", 2, 0.0),
    ("zero-bubble", 1, 0.0),
    ("zbv-formatted", 2, 0.0),
    ("zbv-greedy-half", 2, 0.01),
    ("zbv-greedy-min", 2, 0.01),
]


@pytest.mark.parametrize(("schedule", "vpp", "slack"), SCHEDULES)
def test_a_doubled_batch_keeps_throughput_and_shrinks_the_bubble(
    schedule: str, vpp: int, slack: float
) -> None:
    results = [
        project("moe, four nodes", pp_schedule=schedule, vpp=vpp, gbs=gbs)
        for gbs in (64, 128, 256, 512)
    ]
    for fewer, more in pairwise(results):
        assert rate(more) >= rate(fewer) * (1 - slack - 1e-9)
        assert (more.bubble_ratio or 0) <= (fewer.bubble_ratio or 0) + slack


@EITHER
def test_fp8_speeds_up_and_leaves_attention_alone(case: str) -> None:
    bf16, fp8 = project(case), project(case, fp8="hybrid")
    assert ms(fp8) < ms(bf16)
    attention = "attention"
    assert fp8.time_breakdown_ms[attention] == bf16.time_breakdown_ms[attention]


@EITHER
def test_context_parallelism_never_beats_half_the_work_and_its_exposed_transfers(
    case: str,
) -> None:
    knobs = {"tp": 2} if case.startswith("dense") else {}
    one, two = project(case, **knobs), project(case, **knobs, cp=2)
    # Half the replicas run twice the microbatches, each of half the positions.
    work = ("gemm", "attention", "elementwise")
    before = sum(one.time_breakdown_ms[name] for name in work)
    after = sum(two.time_breakdown_ms[name] for name in work)
    assert after >= 0.98 * before
    assert two.time_breakdown_ms["attention"] == pytest.approx(
        one.time_breakdown_ms["attention"], rel=0.12
    )


@pytest.mark.parametrize("case", ["moe, one node", "moe, four nodes"])
@pytest.mark.parametrize("slow", [1, 4])
def test_deepep_never_hurts_an_exposed_exchange(case: str, slow: int) -> None:
    base = cluster(CASES[case][1])
    network = base.network.model_copy(update={"node_bw": base.network.node_bw / slow})
    on = base.model_copy(update={"network": network})
    plain, deepep = project(case, on), project(case, on, use_turbo_deepep=True)
    assert plain.time_breakdown_ms["ep_comm"] > 0
    assert ms(deepep) < ms(plain)
