from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projection.attention import attention_backward_ms, attention_forward_ms
from projection.collectives import price
from projection.gemm import gemm_model
from projection.gemm.origami import OrigamiGemm, unavailable_reason
from projection.gemm.tile import TileGemm
from projection.kernels import KernelModels, gemm_factor
from projection.operations import (
    AttentionCore,
    Collective,
    Forwarding,
    Gemm,
    MemoryPass,
    distinct_ranks,
)
from projection.placement import Group, Placement
from projection.profiles import achievable, at_clock, gpu_names, gpu_profile, network_profile
from schemas.cluster import Cluster
from schemas.gpu import GpuProfile


def models(name: str = "mi355x", nodes: int = 2, *, tp: int = 8, ep: int = 8) -> KernelModels:
    gpu, network = gpu_profile(name), network_profile(name)
    cluster = Cluster(
        name="test",
        num_nodes=nodes,
        gpus_per_node=8,
        gpu=gpu,
        network=network,
        hbm_capacity_gb=gpu.hbm_capacity_gb,
        memory_safety_margin=0.1,
    )
    dp = nodes * 8 // tp
    placement = Placement(cluster, tp=tp, cp=1, pp=1, dp=dp, ep=ep, etp=1, edp=nodes * 8 // ep)
    return KernelModels(gpu, achievable(gpu, "tile"), TileGemm(gpu), network, placement)


GEMM = Gemm("up", 8192, 28672, 8192)
CORE = AttentionCore("core", 1, 64, 8, 8192, 8192, 128, 128)


def test_gemm_time_is_the_models_over_the_factor_of_its_type_and_a_launch() -> None:
    m = models()
    launch_ms = m.achievable.kernel_launch_us * 1e-3
    bf16 = m.gemm.time_ms(8192, 28672, 8192) / m.achievable.gemm_bf16 + launch_ms
    fp8 = m.gemm.time_ms(8192, 28672, 8192, dtype="fp8") / m.achievable.gemm_fp8 + launch_ms
    assert m.gemm_ms(GEMM) == bf16
    assert m.gemm_ms(Gemm("up", 8192, 28672, 8192, dtype="fp8")) == fp8 < bf16


def test_attention_has_a_factor_per_direction() -> None:
    m = models()
    launch_ms = m.achievable.kernel_launch_us * 1e-3
    assert m.attention_ms(CORE, backward=False) == (
        attention_forward_ms(CORE, m.gpu) / m.achievable.attention + launch_ms
    )
    assert m.attention_ms(CORE, backward=True) == (
        attention_backward_ms(CORE, m.gpu) / (m.achievable.attention_backward or 0) + launch_ms
    )


def test_backward_falls_back_on_the_forward_factor() -> None:
    m = models()
    factors = m.achievable.model_copy(update={"attention_backward": None})
    plain = KernelModels(m.gpu, factors, m.gemm, m.network, m.placement)
    expected = attention_backward_ms(CORE, m.gpu) / factors.attention
    assert plain.attention_ms(CORE, backward=True) == pytest.approx(expected, rel=0.01)


def test_memory_pass_is_traffic_and_launches() -> None:
    m = models("mi300x")
    one = m.pass_ms(MemoryPass("norm", 5.3e9))
    assert one == pytest.approx(1 / m.achievable.hbm + m.achievable.kernel_launch_us * 1e-3)
    three = m.pass_ms(MemoryPass("norm", 5.3e9, launches=3))
    assert three - one == pytest.approx(2 * m.achievable.kernel_launch_us * 1e-3)
    assert m.optimizer_ms(5.3e9) == pytest.approx(1 / m.achievable.optimizer_hbm)


def test_collective_is_priced_on_the_group_that_performs_it() -> None:
    m = models(tp=4)
    inside = Collective("tp", "allgather", 1e8, "tp")
    across = Collective("dp", "allgather", 1e8, "dp")
    assert m.placement.group("dp").num_nodes == 2
    for op in (inside, across):
        expected = price(op.kind, 1e8, m.placement.group(op.group), m.network, m.achievable)
        assert m.collective(op) == expected
    assert m.collective(inside).time_ms < m.collective(across).time_ms


def test_another_placement_shares_the_memory_but_not_the_group() -> None:
    one = models(tp=8)
    op = Collective("tp", "allreduce", 1e8, "tp")
    eight = one.collective(op).time_ms
    other = one.with_placement(models(tp=1).placement)
    assert other.collective(op).time_ms == 0
    assert one.collective(op).time_ms == eight


def raised(gpu: GpuProfile, lever: str, factor: float) -> GpuProfile:
    """`gpu` with one figure raised, compute units kept."""
    if lever == "clock":
        return at_clock(gpu, gpu.clock_mhz * factor)
    if lever == "hbm":
        return gpu.model_copy(update={"hbm_gb_per_s": gpu.hbm_gb_per_s * factor})
    update: dict[str, Any] = {"bf16_tflops": gpu.bf16_tflops * factor}
    if gpu.fp8_tflops is not None:
        update["fp8_tflops"] = gpu.fp8_tflops * factor
    return gpu.model_copy(update=update)


DIM = st.integers(1, 20000)
LEVERS = st.sampled_from(["clock", "hbm", "peak"])
NOISE = 1 + 1e-9


@given(
    name=st.sampled_from(gpu_names()),
    m=DIM,
    n=DIM,
    k=DIM,
    batch=st.sampled_from([1, 2, 8, 32]),
    fp8=st.booleans(),
    lever=LEVERS,
    factor=st.floats(1, 3),
)
@settings(max_examples=300, deadline=None)
def test_a_better_gpu_never_slows_a_tile_gemm(
    name: str, m: int, n: int, k: int, batch: int, fp8: bool, lever: str, factor: float
) -> None:
    gpu = gpu_profile(name)
    dtype: Any = "fp8" if fp8 and gpu.fp8_tflops else "bf16"
    before = TileGemm(gpu).time_ms(m, n, k, batch=batch, dtype=dtype)
    after = TileGemm(raised(gpu, lever, factor)).time_ms(m, n, k, batch=batch, dtype=dtype)
    assert after <= before * NOISE


@pytest.mark.origami
@pytest.mark.skipif(
    unavailable_reason(gpu_profile("mi300x")) is not None, reason="rocm-origami missing"
)
@given(
    name=st.sampled_from(["mi300x", "mi325x", "mi350x", "mi355x"]),
    m=DIM,
    n=DIM,
    k=DIM,
    batch=st.sampled_from([1, 8]),
    dtype=st.sampled_from(["bf16", "fp8"]),
    lever=LEVERS,
    factor=st.floats(1.01, 2),
)
@settings(max_examples=60, deadline=None)
def test_a_better_gpu_never_slows_an_origami_gemm(
    name: str, m: int, n: int, k: int, batch: int, dtype: Any, lever: str, factor: float
) -> None:
    """Up to 1 %: Origami picks its split of K by rules of thumb that a faster GPU can flip.

    One shape in some thousands is then slower, by 0.4 % at most in what was seen.
    """
    gpu = gpu_profile(name)
    before = OrigamiGemm(gpu).time_ms(m, n, k, batch=batch, dtype=dtype)
    after = OrigamiGemm(raised(gpu, lever, factor)).time_ms(m, n, k, batch=batch, dtype=dtype)
    assert after <= before * 1.01


@given(
    name=st.sampled_from(gpu_names()),
    seq=st.integers(1, 32768),
    d=st.sampled_from([64, 128, 192]),
    heads=st.integers(1, 64),
    causal=st.booleans(),
    lever=LEVERS,
    factor=st.floats(1, 3),
    backward=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_a_better_gpu_never_slows_attention(
    name: str,
    seq: int,
    d: int,
    heads: int,
    causal: bool,
    lever: str,
    factor: float,
    backward: bool,
) -> None:
    gpu = gpu_profile(name)
    op = AttentionCore("core", 1, heads, heads, seq, seq, d, d, causal=causal)
    model = attention_backward_ms if backward else attention_forward_ms
    assert model(op, raised(gpu, lever, factor)) <= model(op, gpu) * NOISE


@pytest.mark.parametrize("name", gpu_names())
def test_every_shipped_gpu_prices_everything(name: str) -> None:
    gpu, network = gpu_profile(name), network_profile(name, gpus_per_node=8)
    cluster = Cluster(
        name="one",
        num_nodes=2,
        gpus_per_node=8,
        gpu=gpu,
        network=network,
        hbm_capacity_gb=gpu.hbm_capacity_gb,
        memory_safety_margin=0.1,
    )
    gemm = gemm_model(gpu, "auto")
    placement = Placement(cluster, tp=8, cp=1, pp=1, dp=2, ep=16, etp=1, edp=1)
    m = KernelModels(gpu, achievable(gpu, gemm.name), gemm, network, placement)
    times = (
        m.gemm_ms(GEMM),
        m.attention_ms(CORE, backward=False),
        m.pass_ms(MemoryPass("norm", 1e9)),
        m.collective(Collective("a2a", "alltoall", 1e8, "ep")).time_ms,
    )
    assert all(0 < time < 1000 for time in times)


def test_gemm_factor_goes_by_precision_direction_and_kind_of_kernel() -> None:
    a = achievable(gpu_profile("mi355x"), "tile")

    def factor(layout: str, dtype: str, batch: int = 1, call: str = "linear") -> float:
        fields: dict[str, Any] = {"dtype": dtype, "layout": layout, "call": call, "batch": batch}
        return gemm_factor(Gemm("g", 8, 8, 8, **fields), a)

    assert factor("TN", "bf16") == factor("TN", "bf16", call="plain") == a.gemm_bf16
    assert factor("NN", "bf16") == factor("NT", "bf16") == a.gemm_bf16_backward
    assert factor("NT", "fp8") == a.gemm_fp8_backward
    assert factor("TN", "bf16", 4, "grouped") == a.grouped_bf16
    assert factor("NT", "bf16", 4, "grouped") == a.grouped_bf16_backward
    assert factor("TN", "bf16", 1, "grouped") == a.one_expert_bf16
    assert factor("NN", "fp8", 1, "grouped") == factor("NN", "fp8", 4, "grouped")
    assert factor("NN", "fp8", 4, "grouped") == a.grouped_fp8_backward


@pytest.mark.parametrize("name", gpu_names())
def test_a_gpu_without_a_figure_of_its_own_falls_back_on_the_general_one(name: str) -> None:
    a = achievable(gpu_profile(name))
    plain = a.model_copy(update=dict.fromkeys(PARTICULAR))
    for dtype, general in (("bf16", a.gemm_bf16), ("fp8", a.gemm_fp8)):
        for layout in ("TN", "NN", "NT"):
            for batch in (1, 8):
                fields: dict[str, Any] = {"dtype": dtype, "layout": layout, "call": "grouped"}
                assert gemm_factor(Gemm("g", 8, 8, 8, batch, **fields), plain) == general


PARTICULAR = (
    "gemm_bf16_backward",
    "gemm_fp8_backward",
    "one_expert_bf16",
    "one_expert_bf16_backward",
    "grouped_bf16",
    "grouped_bf16_backward",
    "grouped_fp8",
    "grouped_fp8_backward",
)


def test_forwarded_tokens_cross_to_a_node_once() -> None:
    """8 of 256 experts on two nodes: 6.5 of 16 ranks get a token, but one copy crosses."""
    m = models("h100-sxm", 2, tp=1, ep=16)
    tokens = 4096 * 7168 * 2.0
    size = tokens * distinct_ranks(256, 8, 16)
    forwarding = Forwarding(tokens, 256, 8)
    assert forwarding.crossing_bytes(2) == pytest.approx(0.9965 * tokens, rel=0.001)
    plain = m.collective(Collective("dispatch", "alltoall", size, "ep"))
    once = m.collective(Collective("dispatch", "alltoall", size, "ep", forwarding=forwarding))
    bound_ms = 0.9965 * tokens / (50 * m.achievable.pod_link) * 1e-6
    assert once.algorithm == "forwarded"
    assert bound_ms < once.time_ms < 1.15 * bound_ms
    assert 3 < plain.time_ms / once.time_ms < 3.5


def test_forwarding_changes_nothing_inside_a_node_or_with_a_rank_on_each() -> None:
    tokens = 4096 * 7168 * 2.0
    for nodes, ep in ((1, 8), (16, 16)):
        m = models("h100-sxm", nodes, tp=8 if nodes > 1 else 1, ep=ep)
        group = Group(ep, ep // nodes, nodes, 1)
        size = tokens * distinct_ranks(256, 8, ep)
        plain = Collective("dispatch", "alltoall", size, "ep")
        once = replace(plain, forwarding=Forwarding(tokens, 256, 8))
        assert m.collective_on(once, group).time_ms == pytest.approx(
            m.collective_on(plain, group).time_ms
        )
