"""One iteration: its parts sum, and each part does what physics says."""

from typing import Any

import pytest

from projection.oracle import Oracle
from projection.time.flops import attended_pairs, model_flops_per_sequence
from projection.time.fsdp import exposed
from schemas.cluster import Cluster, MoeImbalance
from schemas.evaluation import Evaluation, SignatureHashes
from schemas.search import SearchSpec
from schemas.workload import Precision, Workload
from tests.builders import (
    cluster,
    deepseek_v3,
    llama_70b,
    mixtral_8x22b,
    small_dense,
)
from tests.projection.memory.reports import parameters_of

SIGNATURE = SignatureHashes(model="0" * 16, cluster="0" * 16, stack="0" * 16)
TILE = SearchSpec(gemm_backend="tile")
ZERO_1 = {
    "use_torch_fsdp2": False,
    "use_distributed_optimizer": True,
    "recompute_granularity": "none",
    "recompute_method": None,
    "recompute_num_layers": 0,
}


def project(workload: Workload, on: Cluster | None = None, **knobs: Any) -> Evaluation:
    oracle = Oracle(workload, on or cluster(4), TILE, signature=SIGNATURE)
    evaluation = oracle.project(workload.baseline.model_copy(update=knobs))
    assert evaluation.legal, evaluation.reason
    return evaluation


def ms(evaluation: Evaluation, name: str) -> float:
    return evaluation.time_breakdown_ms.get(name, 0.0)


@pytest.mark.parametrize(
    ("workload", "knobs"),
    [
        (llama_70b(), {"gbs": 64}),
        (llama_70b(), {**ZERO_1, "tp": 8, "pp": 2, "gbs": 64}),
        (mixtral_8x22b(), {}),
        (mixtral_8x22b(), {"vpp": 2, "pp_schedule": "interleaved"}),
        (mixtral_8x22b(), {"fp8": "hybrid", "use_turbo_deepep": True}),
        (deepseek_v3(), {"pp": 8, "vpp": 4, "layout": None}),
    ],
)
def test_breakdowns_sum_exactly(workload: Workload, knobs: dict[str, Any]) -> None:
    result = project(workload, cluster(8), **knobs)
    assert sum(result.time_breakdown_ms.values()) == result.iteration_ms
    assert sum(result.memory_breakdown_gb.values()) == result.memory_per_gpu_gb
    assert all(value >= 0 for value in result.time_breakdown_ms.values())
    exposed_names = ("tp_comm", "cp_comm", "ep_comm", "fsdp_comm", "pipeline_p2p")
    data_parallel = ("dp_grad_reduce", "dp_param_gather", "tied_embedding_allreduce")
    in_time = sum(ms(result, name) for name in exposed_names + data_parallel)
    assert sum(result.comm_breakdown.values()) == pytest.approx(in_time, rel=1e-9)


def test_throughput_is_the_batch_over_the_iteration_and_the_world() -> None:
    result = project(mixtral_8x22b())
    assert result.iteration_ms is not None
    tokens = 128 * 8192 / (result.iteration_ms / 1000) / 32
    assert result.tokens_per_s_per_gpu == pytest.approx(tokens)
    flops = model_flops_per_sequence(mixtral_8x22b().architecture, 8192) / 8192
    assert result.tflops_per_s_per_gpu == pytest.approx(tokens * flops / 1e12)
    assert result.mfu == pytest.approx(result.tflops_per_s_per_gpu / 2517)


def test_model_flops_are_six_per_active_weight_and_causal_attention() -> None:
    architecture = mixtral_8x22b().architecture
    attention = 2 * 6144 * 6144 + 2 * 6144 * 1024
    active = 56 * (attention + 2 * 3 * 6144 * 16384 + 6144 * 8) + 6144 * 32000
    causal = 56 * 3 * 2 * 2 * 48 * 128 * 8192 * 8193 / 2
    expected = 6 * active * 8192 + causal
    assert model_flops_per_sequence(architecture, 8192) == pytest.approx(expected)


def test_a_window_keeps_only_its_keys() -> None:
    assert attended_pairs(8, None) == 36
    assert attended_pairs(8, 8) == 36
    assert attended_pairs(8, 3) == 1 + 2 + 3 * 6


def test_recomputed_layers_run_their_forward_once_more_and_no_others() -> None:
    block = {"recompute_granularity": "full", "recompute_method": "block"}
    none = project(mixtral_8x22b())
    seven = project(mixtral_8x22b(), **block, recompute_num_layers=7)
    all_layers = project(mixtral_8x22b(), **block, recompute_num_layers=14)
    more = project(mixtral_8x22b(), **block, recompute_num_layers=30)
    uniform = project(
        mixtral_8x22b(),
        recompute_granularity="full",
        recompute_method="uniform",
        recompute_num_layers=1,
    )
    assert ms(none, "recompute") == 0
    assert ms(all_layers, "recompute") == pytest.approx(2 * ms(seven, "recompute"))
    assert more.iteration_ms == all_layers.iteration_ms == uniform.iteration_ms
    forward = (ms(none, "gemm") + ms(none, "attention") + ms(none, "elementwise")) / 3
    assert 0.7 * forward < ms(all_layers, "recompute") < 1.1 * forward


def test_block_recompute_counts_layers_per_virtual_stage_in_time_as_in_memory() -> None:
    knobs = {
        "vpp": 2,
        "pp_schedule": "interleaved",
        "recompute_granularity": "full",
        "recompute_method": "block",
    }
    seven = project(mixtral_8x22b(), **knobs, recompute_num_layers=7)
    fourteen = project(mixtral_8x22b(), **knobs, recompute_num_layers=14)
    assert seven.iteration_ms == fourteen.iteration_ms
    assert seven.memory_per_gpu_gb == fourteen.memory_per_gpu_gb


def test_uniform_recompute_without_a_pipeline_costs_a_forward_pass() -> None:
    full = {"recompute_granularity": "full", "gbs": 32}
    block = project(llama_70b(), **full, recompute_method="block", recompute_num_layers=80)
    uniform = project(llama_70b(), **full, recompute_method="uniform", recompute_num_layers=1)
    assert block.iteration_ms == uniform.iteration_ms


def test_layer_ids_are_recomputed_in_time_as_in_memory() -> None:
    ids = {"recompute_granularity": "full", "recompute_layer_ids": (0, 1, 2)}
    few = project(mixtral_8x22b(), **ids)
    assert few.iteration_ms is not None
    baseline = project(mixtral_8x22b()).iteration_ms
    assert baseline is not None
    assert few.iteration_ms > baseline


def test_selective_recompute_runs_attention_once_more() -> None:
    none = project(mixtral_8x22b())
    selective = project(
        mixtral_8x22b(), recompute_granularity="selective", recompute_modules=("core_attn",)
    )
    assert 0 < ms(selective, "recompute") < ms(none, "attention") / 2


def test_fp8_speeds_up_linear_layers_and_not_attention() -> None:
    dense, moe = llama_70b(gbs=64), mixtral_8x22b()
    for workload, least, most in ((dense, 1.5, 2.2), (moe, 1.02, 1.5)):
        bf16, fp8 = project(workload), project(workload, fp8="hybrid")
        assert least < ms(bf16, "gemm") / ms(fp8, "gemm") < most
        assert ms(fp8, "attention") == ms(bf16, "attention")
        assert ms(fp8, "elementwise") > ms(bf16, "elementwise")
        assert (fp8.iteration_ms or 0) < (bf16.iteration_ms or 0)


def test_context_parallel_halves_the_work_and_adds_its_exposed_communication() -> None:
    workload = llama_70b().model_copy(update={"seq_length": 32768})
    knobs = {**ZERO_1, "tp": 4, "gbs": 64}
    one, two = project(workload, **knobs), project(workload, **knobs, cp=2)
    # Half the replicas, so twice the microbatches each; each of them is half as long.
    work = ("gemm", "attention", "elementwise")
    half = sum(ms(one, name) for name in work)
    both = sum(ms(two, name) for name in work)
    assert both == pytest.approx(half, rel=0.05)
    assert two.iteration_ms is not None
    assert one.iteration_ms is not None
    assert two.iteration_ms >= one.iteration_ms * 0.98


def test_all_to_all_context_parallelism_has_its_communication_priced() -> None:
    workload = llama_70b().model_copy(update={"cp_comm_type": "a2a"})
    assert ms(project(workload, **ZERO_1, tp=4, cp=2, gbs=64), "cp_comm") > 0


def test_tensor_parallel_collectives_are_exposed_and_overlap_hides_some() -> None:
    exposed_ms = ms(project(llama_70b(), **ZERO_1, tp=8, gbs=64), "tp_comm")
    assert exposed_ms > 0
    overlapped = llama_70b().model_copy(update={"tp_comm_overlap": True})
    assert ms(project(overlapped, **ZERO_1, tp=8, gbs=64), "tp_comm") < exposed_ms


def test_a_reduction_of_input_gradients_hides_only_behind_weight_gradients() -> None:
    """A GEMM cannot hide the sum of what it makes: split off, weight gradients hide nothing."""
    whole = llama_70b().model_copy(update={"sequence_parallel": False})
    knobs = {**ZERO_1, "tp": 8, "pp": 2, "gbs": 64}
    split = project(whole, pp_schedule="zero-bubble", **knobs).comm_breakdown
    # Around the MLP forward and backward all-reduce the same bytes, and nothing hides forward's.
    assert split["tp_mlp_allreduce"] / 2 == pytest.approx(split["tp_attention_allreduce"])
    followed = project(whole, pp_schedule="1f1b", **knobs).comm_breakdown
    assert followed["tp_attention_allreduce"] == pytest.approx(split["tp_attention_allreduce"])
    assert followed["tp_qkv_allreduce"] < split["tp_qkv_allreduce"]


def test_deepep_and_sync_free_stages_expose_less_and_less_of_the_exchange() -> None:
    on = cluster(4, calibration="none")
    plain = ms(project(mixtral_8x22b(), on), "ep_comm")
    exposed_ms = [plain]
    for stage in (0, 1, 2, 3):
        result = project(mixtral_8x22b(), on, use_turbo_deepep=True, sync_free_stage=stage)
        exposed_ms.append(ms(result, "ep_comm"))
    assert exposed_ms == sorted(exposed_ms, reverse=True)
    assert exposed_ms[1] == pytest.approx(0.35 * plain)


def test_deepep_exchanges_over_expert_tensor_ranks_too() -> None:
    """A token travels to each rank once, so its gathers are of tokens and not of routed copies, and
    hide like the rest; behind an all-to-all the experts wait for them."""
    knobs = {"tp": 2, "etp": 2, "ep": 4}
    plain, deepep = (
        project(mixtral_8x22b(), **knobs),
        project(mixtral_8x22b(), **knobs, use_turbo_deepep=True),
    )
    for name in ("etp_allgather", "etp_reduce_scatter", "moe_dispatch", "moe_combine"):
        assert 0 < deepep.comm_breakdown[name] < 0.4 * plain.comm_breakdown[name]


def test_expert_exchange_across_nodes_costs_more_than_inside_one() -> None:
    inside = mixtral_8x22b(pp=1, ep=8, mbs=1)
    narrow = cluster(4, gpus_per_node=2)
    across = project(inside, narrow, gbs=64)
    within = project(inside, cluster(1), gbs=64)
    assert ms(across, "ep_comm") > 2 * ms(within, "ep_comm")


def test_target_ep_size_prices_the_exchange_of_another_group() -> None:
    own = project(mixtral_8x22b())
    wider = project(mixtral_8x22b(), target_ep_size=32)
    assert ms(wider, "ep_comm") > ms(own, "ep_comm")
    assert ms(wider, "gemm") == ms(own, "gemm")


def test_pooled_imbalance_slows_experts_and_their_exchange_only() -> None:
    free = mixtral_8x22b().model_copy(update={"force_load_balancing": False})
    even = project(free, cluster(4, moe_imbalance=MoeImbalance()))
    skewed = project(free, cluster(4, moe_imbalance=MoeImbalance(layer=1.3, pooled=1.3)))
    assert ms(skewed, "gemm") > 1.15 * ms(even, "gemm")
    assert ms(skewed, "ep_comm") > 1.2 * ms(even, "ep_comm")
    assert ms(skewed, "attention") == ms(even, "attention")


def test_pipeline_transfers_are_priced_and_slower_between_nodes() -> None:
    inside = project(mixtral_8x22b(pp=2, ep=4, mbs=1, gbs=64), cluster(1))
    between = project(mixtral_8x22b(pp=2, ep=4, mbs=1, gbs=64), cluster(8, gpus_per_node=1))
    assert ms(inside, "pipeline_p2p") > 0
    # One link of the node's mesh (537.6 / 7 GB/s) against one NIC (50 GB/s).
    assert ms(between, "pipeline_p2p") > ms(inside, "pipeline_p2p")


def test_more_microbatches_lower_the_bubble_share() -> None:
    ratios = [project(mixtral_8x22b(), gbs=gbs).bubble_ratio for gbs in (64, 128, 512)]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[1] == pytest.approx(3 / 11, abs=0.02)


def test_a_single_microbatch_pipeline_is_not_cut_short() -> None:
    result = project(mixtral_8x22b(mbs=2, gbs=16))
    assert result.num_microbatches == 1
    # One microbatch visits four stages one after the other: three quarters idle.
    assert result.bubble_ratio == pytest.approx(0.75, abs=0.03)


def test_gradient_overlap_hides_all_but_the_last_bucket() -> None:
    on = cluster(8)
    apart = project(llama_70b(), on, **ZERO_1, tp=8, gbs=64, overlap_grad_reduce=False)
    hidden = project(llama_70b(), on, **ZERO_1, tp=8, gbs=64, overlap_grad_reduce=True)
    assert 0 < ms(hidden, "dp_grad_reduce") < 0.5 * ms(apart, "dp_grad_reduce")


def test_all_reduce_costs_more_than_its_scatter_and_the_gather_is_charged_apart() -> None:
    knobs = {**ZERO_1, "tp": 8, "gbs": 64, "overlap_grad_reduce": False}
    knobs |= {"overlap_param_gather": False}
    sharded = project(llama_70b(), cluster(8), **knobs)
    plain = project(llama_70b(), cluster(8), **{**knobs, "use_distributed_optimizer": False})
    assert ms(plain, "dp_grad_reduce") > 1.5 * ms(sharded, "dp_grad_reduce")
    assert ms(sharded, "dp_param_gather") > 0
    assert ms(plain, "dp_param_gather") == 0
    assert ms(plain, "optimizer") > 4 * ms(sharded, "optimizer")


def test_an_fp8_gather_takes_linear_weights_alone_in_one_byte() -> None:
    """The embedding, the output head and the norms stay in two."""
    knobs = {**ZERO_1, "tp": 8, "pp": 1, "gbs": 64, "fp8": "hybrid", "overlap_param_gather": False}
    narrow = llama_70b().model_copy(update={"precision": Precision(fp8_param_gather=True)})
    in_two = ms(project(llama_70b(), cluster(16), **knobs), "dp_param_gather")
    in_one = ms(project(narrow, cluster(16), **knobs), "dp_param_gather")
    [rank] = parameters_of(llama_70b(), 16, **{**knobs, "vpp": 1})
    linear = rank.linear_dense / rank.parameters.dense
    assert linear < 0.98
    assert in_one == pytest.approx(in_two * (2 - linear) / 2, rel=0.01)


def test_expert_gradients_cannot_hide_behind_a_backward_full_of_exchanges() -> None:
    workload = mixtral_8x22b(ep=4)
    free = project(workload, overlap_grad_reduce=True)
    apart = project(workload, overlap_grad_reduce=False)
    experts = 14 * 2 * 3 * 6144 * 16384
    dense = 14 * (2 * 6144 * 6144 + 2 * 6144 * 1024)
    share = experts / (experts + dense)
    assert ms(free, "dp_grad_reduce") > 0.8 * share * ms(apart, "dp_grad_reduce")


def test_fsdp_overlap_never_hides_more_than_its_ceiling() -> None:
    assert exposed(10.0, 100.0, 0.95) == pytest.approx(0.5)
    assert exposed(10.0, 5.0, 0.95) == pytest.approx(10 * (1 - 0.95 / 2))
    assert exposed(0.0, 5.0, 0.95) == 0.0


def test_fsdp_hides_behind_kernels_and_not_behind_another_exposed_collective() -> None:
    """A ring over slow links leaves the GPU idle and the links busy."""
    on, knobs = cluster(16), {"cp": 64, "gbs": 64, "use_torch_fsdp2": True}
    long = llama_70b(**knobs).model_copy(update={"seq_length": 131072})
    slow = on.network.model_copy(update={"pod_bw": 0.5, "cluster_bw": 0.5})
    slower = on.network.model_copy(update={"pod_bw": 0.25, "cluster_bw": 0.25})
    apart = [project(long, on.model_copy(update={"network": n})) for n in (slow, slower)]
    assert all(ms(one, "cp_comm") > ms(one, "gemm") for one in apart)
    assert ms(apart[1], "fsdp_comm") > 2 * ms(apart[0], "fsdp_comm")


def test_fsdp_pays_for_every_microbatch() -> None:
    one, four = project(llama_70b(), gbs=32), project(llama_70b(), gbs=128)
    assert ms(four, "fsdp_comm") == pytest.approx(4 * ms(one, "fsdp_comm"))


def test_tied_tables_on_two_ranks_are_kept_equal_by_an_all_reduce() -> None:
    base = small_dense(pp=2, gbs=64)
    tied = base.architecture.model_copy(update={"tied_embeddings": True})
    workload = base.model_copy(update={"architecture": tied})
    assert ms(project(workload, cluster(1)), "tied_embedding_allreduce") > 0
    assert ms(project(base, cluster(1)), "tied_embedding_allreduce") == 0


def test_the_hardware_file_reaches_every_collective() -> None:
    slow = cluster(4).network.model_copy(update={"node_bw": 100.0, "pod_bw": 10.0})
    on = cluster(4).model_copy(update={"network": slow})
    for workload, name in ((mixtral_8x22b(), "ep_comm"), (mixtral_8x22b(), "pipeline_p2p")):
        assert ms(project(workload, on), name) > 2 * ms(project(workload), name), name
    knobs = {**ZERO_1, "tp": 8, "gbs": 64}
    slow_tp = ms(project(llama_70b(), on, **knobs), "tp_comm")
    assert slow_tp > 2 * ms(project(llama_70b(), **knobs), "tp_comm")


def test_slower_links_never_speed_anything_up() -> None:
    network = cluster(4).network
    for update in ({"node_bw": 50.0}, {"pod_bw": 5.0}, {"node_lat": 5.0}, {"pod_lat": 50.0}):
        on = cluster(4).model_copy(update={"network": network.model_copy(update=update)})
        slow, fast = project(mixtral_8x22b(), on), project(mixtral_8x22b())
        assert slow.iteration_ms is not None
        assert fast.iteration_ms is not None
        assert slow.iteration_ms >= fast.iteration_ms * (1 - 1e-9), update


def test_doubling_the_batch_never_lowers_throughput() -> None:
    for knobs in ({}, {"vpp": 2, "pp_schedule": "interleaved"}):
        rates = [
            project(mixtral_8x22b(), **knobs, gbs=gbs).tokens_per_s_per_gpu or 0.0
            for gbs in (64, 128, 256, 512)
        ]
        assert rates == sorted(rates)


def test_a_slower_gpu_is_slower() -> None:
    gpu = cluster(4).gpu
    slower = gpu.model_copy(update={"clock_mhz": gpu.clock_mhz * 0.8, "bf16_tflops": 2000.0})
    on = cluster(4).model_copy(update={"gpu": slower})
    assert (project(mixtral_8x22b(), on).iteration_ms or 0) > (
        project(mixtral_8x22b()).iteration_ms or 0
    )


def test_shared_expert_overlap_hides_the_exchange() -> None:
    base = deepseek_v3(pp=1, vpp=1, ep=32, layout=None, pp_schedule="1f1b", gbs=64)
    plain = base.baseline.model_copy(
        update={
            "use_turbo_deepep": False,
            "sync_free_stage": 0,
            "recompute_granularity": "none",
            "recompute_layer_ids": (),
        }
    )
    workload = base.model_copy(update={"baseline": plain})
    overlapped = workload.model_copy(update={"moe_shared_expert_overlap": True})
    assert ms(project(overlapped), "ep_comm") < ms(project(workload), "ep_comm")


def test_the_moment_a_trial_differs_in_shape_its_layers_are_priced_anew() -> None:
    oracle = Oracle(mixtral_8x22b(), cluster(4), TILE, signature=SIGNATURE)
    base = mixtral_8x22b().baseline
    first = oracle.project(base)
    other = oracle.project(base.model_copy(update={"mbs": 1}))
    again = oracle.project(base)
    assert first == again
    assert other.iteration_ms != first.iteration_ms
    fresh = Oracle(mixtral_8x22b(), cluster(4), TILE, signature=SIGNATURE)
    assert fresh.project(base.model_copy(update={"mbs": 1})) == other
