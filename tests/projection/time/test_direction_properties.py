"""Directions that hold for any trial of any model on any cluster, searched for counter-examples."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from projection.legality import LegalSpace
from projection.oracle import Oracle
from projection.profiles import gpu_profile, network_profile
from schemas.cluster import Cluster
from schemas.evaluation import Evaluation, SignatureHashes
from schemas.search import SearchSpec
from schemas.trial import NormalTrial
from schemas.workload import Workload
from tests.builders import (
    cluster,
    llama_70b,
    mixtral_8x22b,
    small_dense,
    small_latent,
    small_moe,
)

SIGNATURE = SignatureHashes(model="0" * 16, cluster="0" * 16, stack="0" * 16)
TILE = SearchSpec(gemm_backend="tile")
ALLOWED = 1 + 1e-9
GREEDY = ("zb-heuristic", "ilp", "zbv-greedy-half", "zbv-greedy-min")


def with_architecture(workload: Workload, **changes: object) -> Workload:
    architecture = workload.architecture.model_copy(update=changes)
    return workload.model_copy(update={"architecture": architecture})


def by_heads(workload: Workload) -> Workload:
    return workload.model_copy(update={"cp_comm_type": "a2a"})


def overlapping(workload: Workload) -> Workload:
    return workload.model_copy(update={"moe_shared_expert_overlap": True, "tp_comm_overlap": True})


WORKLOADS = {
    "dense": small_dense(gbs=64),
    "one layer": with_architecture(small_dense(gbs=64), num_layers=1),
    "sliding window": with_architecture(small_dense(gbs=64), sliding_window=256),
    "all-to-all context parallelism": by_heads(small_dense(gbs=64)),
    "experts": small_moe(gbs=64),
    "shared expert, overlapping": overlapping(
        with_architecture(small_moe(gbs=64), shared_expert_hidden_size=1024)
    ),
    "latent attention": small_latent(gbs=64),
    "Llama 70B": llama_70b(gbs=64),
    "Mixtral 8x22B": mixtral_8x22b(gbs=64),
}
CHANGES: dict[str, dict[str, object]] = {
    "mesh": {"node_topology": "mesh"},
    "switch": {"node_topology": "switch"},
    "shared NICs behind a switch": {"switch_topology": True, "nics_per_node": 1},
    "pods of one node": {"pod_size": 1},
}


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """1 to 64 GPUs of any vendor, nodes of 1 to 8, meshed or switched, one pod or several."""
    names = ["mi300x", "mi325x", "mi355x", "a100", "h100", "b200", "gb200"]
    gpu = gpu_profile(draw(st.sampled_from(names)))
    nodes, per_node = draw(st.sampled_from([1, 2, 4, 8])), draw(st.sampled_from([1, 2, 4, 8]))
    built = cluster(nodes, per_node, gpu)
    network = built.network
    if draw(st.booleans()) and per_node <= network_profile(gpu.name).node_size:
        network = network_profile(gpu.name, per_node)
    network = network.model_copy(update=CHANGES[draw(st.sampled_from(sorted(CHANGES)))])
    order = draw(st.sampled_from(["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"]))
    return built.model_copy(update={"network": network, "placement": order})


@dataclass(frozen=True)
class Case:
    """A legal trial, and what to project it on."""

    workload: Workload
    cluster: Cluster
    trial: NormalTrial

    def project(self, on: Cluster | None = None, **knobs: object) -> Evaluation:
        oracle = Oracle(self.workload, on or self.cluster, TILE, signature=SIGNATURE)
        return oracle.project(self.trial.model_copy(update=knobs))

    def ms(self, on: Cluster | None = None) -> float:
        result = self.project(on)
        assert result.legal, result.reason
        assert result.iteration_ms is not None
        return result.iteration_ms


@st.composite
def cases(draw: st.DrawFn, names: tuple[str, ...] = tuple(WORKLOADS)) -> Case:
    workload, on = WORKLOADS[draw(st.sampled_from(names))], draw(clusters())
    space = LegalSpace(workload, on, TILE)
    count = space.count()
    assume(count)
    return Case(workload, on, space[draw(st.integers(0, count - 1))])


def test_compute_hides_one_collective_only() -> None:
    """Attention behind which a ring runs does not hide an expert exchange as well."""
    recipe = {"tp": 4, "pp": 1, "ep": 8, "etp": 4, "cp": 8, "mbs": 8, "use_turbo_deepep": True}
    workload = mixtral_8x22b(gbs=64)
    gpu = gpu_profile("mi325x")
    case = Case(
        workload, cluster(8, 4, gpu), workload.baseline.model_copy(update=recipe | {"fp8": "e4m3"})
    )
    faster = gpu.model_copy(update={"bf16_tflops": gpu.bf16_tflops * 1.3})
    assert case.ms(cluster(8, 4, faster)) < case.ms()


LINKS = ["node_bw", "pod_bw", "cluster_bw", "vector_flops", "node_lat", "pod_lat", "cluster_lat"]


@given(case=cases(), field=st.sampled_from(LINKS), factor=st.sampled_from([1.05, 2.0, 20.0]))
@settings(max_examples=40, deadline=None)
def test_a_worse_link_never_speeds_anything_up(case: Case, field: str, factor: float) -> None:
    network = case.cluster.network
    worse = factor if field.endswith("lat") else 1 / factor
    changed = network.model_copy(update={field: getattr(network, field) * worse})
    assert case.ms(case.cluster.model_copy(update={"network": changed})) * ALLOWED >= case.ms()


RATES = ["clock_mhz", "bf16_tflops", "fp8_tflops", "vector_tflops", "hbm_gb_per_s"]


@given(
    case=cases(),
    fields=st.sampled_from([(rate,) for rate in RATES] + [tuple(RATES[:4])]),
    factor=st.sampled_from([1.05, 1.3, 2.0]),
)
@settings(max_examples=40, deadline=None)
def test_a_faster_gpu_of_as_many_units_never_slows_anything(
    case: Case, fields: tuple[str, ...], factor: float
) -> None:
    gpu = case.cluster.gpu
    update = {f: getattr(gpu, f) * factor for f in fields if getattr(gpu, f) is not None}
    faster = case.cluster.model_copy(update={"gpu": gpu.model_copy(update=update)})
    assert case.ms(faster) <= case.ms() * ALLOWED


@given(case=cases())
@settings(max_examples=30, deadline=None)
def test_a_doubled_batch_never_lowers_throughput_nor_raises_the_bubble(case: Case) -> None:
    """Greedy orders are left to the tables of `test_directions`: with a handful of microbatches
    and passes of unlike length they idle more in their steady state than in the short run."""
    assume(case.trial.pp_schedule not in GREEDY)
    slack = 1e-9
    once, twice = case.project(), case.project(gbs=2 * case.trial.gbs)
    before, after = once.tokens_per_s_per_gpu, twice.tokens_per_s_per_gpu
    assert before is not None
    assert after is not None
    assert after >= before * (1 - slack)
    assert (twice.bubble_ratio or 0) <= (once.bubble_ratio or 0) + slack


@given(case=cases())
@settings(max_examples=40, deadline=None)
def test_half_of_a_sequence_takes_half_the_time_and_its_exposed_transfers(case: Case) -> None:
    """Twice the context parallelism, half the batch: as many microbatches, each half as long.

    Left out is what the host holds up, which gains while a GPU waits for a transfer; what GEMMs of
    half the rows gain on half their time, for whole waves of tiles may fit them better; and what
    data parallelism gains where its group now has fewer ranks across nodes.
    """
    cp, gbs = case.trial.cp, case.trial.gbs
    assume(gbs % 2 == 0)
    one, two = case.project(), case.project(cp=2 * cp, gbs=gbs // 2)
    assume(two.legal and two.num_microbatches == one.num_microbatches)
    assert one.iteration_ms is not None
    assert two.iteration_ms is not None
    waited = one.time_breakdown_ms.get("host_launch", 0.0)
    added = two.time_breakdown_ms.get("cp_comm", 0.0) - one.time_breakdown_ms.get("cp_comm", 0.0)
    before, after = (x.time_breakdown_ms for x in (one, two))
    gains = (name for name in before if name == "gemm" or name.startswith("dp_"))
    gained = sum(max(0.0, before[name] / 2 - after.get(name, 0.0)) for name in gains)
    half = (one.iteration_ms - waited) / 2
    assert two.iteration_ms + gained >= 0.98 * (half + max(0.0, added))


@given(case=cases())
@settings(max_examples=30, deadline=None)
def test_overlap_of_gradients_and_parameters_never_hurts(case: Case) -> None:
    apart = case.project(overlap_grad_reduce=False, overlap_param_gather=False)
    hidden = case.project(overlap_grad_reduce=True, overlap_param_gather=True)
    assume(apart.legal and hidden.legal)
    assert (hidden.iteration_ms or 0) <= (apart.iteration_ms or 0) * ALLOWED


EXPERTS = ("experts", "shared expert, overlapping", "latent attention", "Mixtral 8x22B")


@given(case=cases(EXPERTS))
@settings(max_examples=40, deadline=None)
def test_deepep_never_hurts_an_exposed_exchange(case: Case) -> None:
    """Against the exchange that DeepEP replaces: nothing of it hides behind a shared expert, which
    Megatron allows with its own all-to-all only (see the next test)."""
    alone = case.workload.model_copy(update={"moe_shared_expert_overlap": False})
    case = replace(case, workload=alone)
    plain = case.project(use_turbo_deepep=False, sync_free_stage=0)
    assume(plain.time_breakdown_ms.get("ep_comm", 0.0) > 0)
    deepep = case.project(use_turbo_deepep=True, sync_free_stage=0)
    assert (deepep.iteration_ms or 0) <= (plain.iteration_ms or 0) * ALLOWED


def test_deepep_gives_up_what_a_wide_shared_expert_hid() -> None:
    """The one exchange, exposed in part, that is faster without DeepEP: a shared expert hides more
    of it than DeepEP's share of overlap, and hides nothing beside DeepEP."""
    wide = with_architecture(small_moe(gbs=64, ep=8), shared_expert_hidden_size=16384)
    wide = with_architecture(wide, num_experts=8)
    on = cluster(1, 8, gpu_profile("mi300x"))
    hides, alone = (Case(workload, on, workload.baseline) for workload in (overlapping(wide), wide))
    plain, deepep = hides.project(), hides.project(use_turbo_deepep=True)
    assert 0 < plain.time_breakdown_ms["ep_comm"] < deepep.time_breakdown_ms["ep_comm"]
    assert (plain.iteration_ms or 0) < (deepep.iteration_ms or 0)
    assert deepep.iteration_ms == alone.project(use_turbo_deepep=True).iteration_ms
    assert (deepep.iteration_ms or 0) < alone.ms()


@pytest.mark.parametrize("name", ["mi300x", "mi355x", "h100", "b200"])
@pytest.mark.parametrize("knobs", [{}, {"tp": 8}])
def test_fp8_speeds_up_compute_bound_layers_and_not_attention(
    name: str, knobs: dict[str, int]
) -> None:
    workload, on = llama_70b(gbs=64), cluster(1, gpu=gpu_profile(name))
    case = Case(workload, on, workload.baseline.model_copy(update=knobs))
    bf16, fp8 = case.project(), case.project(fp8="hybrid")
    assert fp8.time_breakdown_ms["gemm"] < 0.75 * bf16.time_breakdown_ms["gemm"]
    assert fp8.time_breakdown_ms["attention"] == bf16.time_breakdown_ms["attention"]
    assert (fp8.iteration_ms or 0) < (bf16.iteration_ms or 0)
