"""Directions that hold for any trial of any model on any cluster, searched for counter-examples."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from projection.profiles import gpu_profile
from tests.builders import cluster, mixtral_8x22b, small_dense, small_moe
from tests.projection.time.cases import Case, cases, overlapping, with_architecture

ALLOWED = 1 + 1e-9
GREEDY = ("zb-heuristic", "ilp", "zbv-greedy-half", "zbv-greedy-min")


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


@pytest.mark.parametrize(
    ("name", "nodes", "width", "seq", "pp", "gbs", "schedule"),
    [
        ("mi350x", (4, 8), 8192, 512, 2, 32, "zbv-greedy-min"),
        ("h100-sxm", (16, 2), 4096, 2048, 8, 8, "zbv-formatted"),
    ],
)
def test_a_faster_gpu_leaves_gradients_the_time_that_a_v_waits(
    name: str, nodes: tuple[int, int], width: int, seq: int, pp: int, gbs: int, schedule: str
) -> None:
    """A rank's two chunks lie apart: what is reduced meanwhile is not held to their own time."""
    shape = {"num_layers": 16, "hidden_size": width, "ffn_hidden_size": width}
    heads = {"num_attention_heads": 16, "num_query_groups": 8, "kv_channels": 128}
    wide = with_architecture(small_dense(), **shape, **heads, vocab_size=200064)
    gpu = gpu_profile(name)
    knobs = {"pp": pp, "gbs": gbs, "pp_schedule": schedule, "vpp": 2, "mbs": 2}
    trial = wide.baseline.model_copy(update=knobs)
    case = Case(wide.model_copy(update={"seq_length": seq}), cluster(*nodes, gpu), trial)
    twice = {field: 2 * getattr(gpu, field) for field in RATES[:4] if getattr(gpu, field)}
    faster = case.cluster.model_copy(update={"gpu": gpu.model_copy(update=twice)})
    assert case.project().time_breakdown_ms["dp_grad_reduce"] > 0
    assert case.ms(faster) <= case.ms() * ALLOWED


@given(case=cases())
@settings(max_examples=40, deadline=None)
def test_a_doubled_batch_never_lowers_throughput_nor_raises_the_bubble(case: Case) -> None:
    """Within 1 % for greedy orders, each made anew for its number of microbatches."""
    slack = 0.01 if case.trial.pp_schedule in GREEDY else 1e-9
    once, twice = case.project(), case.project(gbs=2 * case.trial.gbs)
    before, after = once.tokens_per_s_per_gpu, twice.tokens_per_s_per_gpu
    assert before is not None
    assert after is not None
    assert after >= before * (1 - slack)
    assert (twice.bubble_ratio or 0) <= (once.bubble_ratio or 0) + slack


@given(case=cases())
@settings(max_examples=60, deadline=None)
def test_half_of_a_sequence_takes_half_the_time_and_its_exposed_transfers(case: Case) -> None:
    """Twice the context parallelism, half the batch: as many microbatches, each half as long.

    A transfer is exposed as far as the GPU would not have waited anyway: where its host is the
    slower side, launches catch up meanwhile. Data parallelism, once an iteration, may gain where
    its ranks now lie elsewhere: more on a node means less through each of the node's NICs.
    """
    halved = {"cp": 2 * case.trial.cp, "gbs": case.trial.gbs // 2}
    assume(case.trial.gbs % 2 == 0)
    one, two = case.project(), case.project(**halved)
    assume(two.legal and two.num_microbatches == one.num_microbatches)
    assert one.iteration_ms is not None
    assert two.iteration_ms is not None
    before, after = one.time_breakdown_ms, two.time_breakdown_ms

    def gained(name: str) -> float:
        return max(0.0, before.get(name, 0.0) / 2 - after.get(name, 0.0))

    added = max(0.0, after.get("cp_comm", 0.0) - before.get("cp_comm", 0.0))
    added -= min(added, gained("host_launch"))
    moved = case.replicas() != case.replicas(**halved)
    elsewhere = sum(gained(n) for n in before if n.startswith("dp_")) if moved else 0.0
    assert two.iteration_ms + elsewhere >= 0.98 * (one.iteration_ms / 2 + added)


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
    wide = with_architecture(small_moe(gbs=64, ep=4, mbs=8), shared_expert_hidden_size=5120)
    on = cluster(4, 1, gpu_profile("a100"))
    hides, alone = (Case(workload, on, workload.baseline) for workload in (overlapping(wide), wide))
    plain, deepep = hides.project(), hides.project(use_turbo_deepep=True)
    assert 0 < plain.time_breakdown_ms["ep_comm"] < deepep.time_breakdown_ms["ep_comm"]
    assert (plain.iteration_ms or 0) < (deepep.iteration_ms or 0)
    assert deepep.iteration_ms == alone.project(use_turbo_deepep=True).iteration_ms
    assert (deepep.iteration_ms or 0) < alone.ms()
