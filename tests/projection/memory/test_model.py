"""Memory per rank: conservation, divisors, directions, and the mistakes others made."""

from typing import Any

import pytest

from projection.memory.lines import LINES, parts
from projection.parameters import model_size, padded_vocab
from schemas.cluster import MoeImbalance
from schemas.workload import Precision, Workload
from tests.builders import deepseek_v3, llama_70b, mixtral_8x22b, small_dense, small_moe
from tests.projection.memory.reports import GIB, components, parameters_of, report


@pytest.mark.parametrize(
    ("workload", "knobs"),
    [
        (llama_70b(), {"tp": 8, "pp": 4}),
        (llama_70b(), {"pp": 8, "first_stage_layers": 9, "last_stage_layers": 11}),
        (mixtral_8x22b(), {}),
        (mixtral_8x22b(), {"tp": 2, "etp": 2, "ep": 4, "pp": 4}),
        (mixtral_8x22b(), {"tp": 2, "etp": 1, "ep": 4, "pp": 4}),
        (deepseek_v3(), {}),
        (small_moe(), {"pp": 2, "ep": 4}),
    ],
)
def test_over_all_ranks_and_shards_the_parameters_are_the_models(
    workload: Workload, knobs: dict[str, Any]
) -> None:
    trial = workload.baseline.model_copy(update=knobs)
    a = workload.architecture
    ranks = parameters_of(workload, **knobs)
    sharded = sum(rank.parameters.tp_sharded for rank in ranks) * trial.tp
    experts = sum(rank.parameters.routed_experts for rank in ranks) * trial.ep * trial.etp
    replicated = sum(rank.parameters.replicated for rank in ranks)
    copies = sum(rank.copies for rank in ranks) * trial.tp
    vocab = padded_vocab(a.vocab_size, workload.make_vocab_size_divisible_by, trial.tp)
    padding = (vocab - a.vocab_size) * a.hidden_size * (1 if a.tied_embeddings else 2)
    size = model_size(a)
    expected = size.total + size.mtp + padding
    assert sharded + experts + replicated - copies == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("tied", [False, True])
def test_tied_embeddings_are_one_table_on_one_rank_and_two_copies_on_two(tied: bool) -> None:
    base = small_dense()
    tied_model = base.architecture.model_copy(update={"tied_embeddings": tied})
    workload = base.model_copy(update={"architecture": tied_model})
    table = padded_vocab(32000, 128, 1) * 512
    alone = parameters_of(workload, 1)[0].parameters.total
    split = parameters_of(workload, 1, pp=2)
    assert sum(rank.parameters.total for rank in split) == alone + (table if tied else 0)
    assert sum(rank.copies for rank in split) == (table if tied else 0)


def test_v_placement_keeps_a_tied_table_once() -> None:
    base = small_dense(pp=2, vpp=2, pp_schedule="zbv-formatted")
    architecture = base.architecture.model_copy(update={"tied_embeddings": True, "num_layers": 8})
    ranks = parameters_of(base.model_copy(update={"architecture": architecture}), 1)
    assert sum(rank.copies for rank in ranks) == 0


def test_multi_token_prediction_sits_with_the_output_and_holds_the_table_too() -> None:
    base = deepseek_v3(layout=None, pp=1, vpp=1, ep=8, pp_schedule="1f1b", recompute_layer_ids=())
    architecture = base.architecture.model_copy(update={"mtp_num_layers": 1, "num_layers": 60})
    architecture = architecture.model_copy(update={"moe_layers": (False,) * 3 + (True,) * 57})
    workload = base.model_copy(update={"architecture": architecture})
    first, last = parameters_of(workload, pp=2)
    table = padded_vocab(129280, 128, 1) * 7168
    assert first.copies == 0
    assert last.copies == table
    assert last.parameters.total - first.parameters.total > table


def test_weights_of_llama_70b_at_tp8_are_an_eighth_and_the_replicated_part() -> None:
    plain = {"use_torch_fsdp2": False, "recompute_granularity": "none"}

    def weights(tp: int) -> float:
        lines = components(report(llama_70b(), **plain, tp=tp))
        return lines["weights"] + lines["vocabulary_weights"]

    whole, eighth = weights(1), weights(8)
    norms = (2 * 80 + 1) * 8192 * 2 / GIB
    assert eighth == pytest.approx((whole - norms) / 8 + norms, rel=1e-3)
    assert whole == pytest.approx(70.55e9 * 2 / GIB, rel=1e-3)


def test_unsharded_mixed_precision_is_eighteen_bytes_per_parameter() -> None:
    memory = components(
        report(llama_70b(), use_torch_fsdp2=False, use_distributed_optimizer=False, tp=8, pp=4)
    )
    weights = memory["weights"]
    assert memory["gradients"] == pytest.approx(2 * weights)
    assert memory["optimizer"] == pytest.approx(6 * weights)


def test_the_distributed_optimizer_divides_states_by_data_times_context_parallel() -> None:
    knobs = {"use_torch_fsdp2": False, "tp": 2, "mbs": 4}
    alone = components(report(llama_70b(), **knobs, use_distributed_optimizer=False))
    for cp in (1, 2):
        shared = components(report(llama_70b(), **knobs, cp=cp, use_distributed_optimizer=True))
        assert shared["optimizer"] == pytest.approx(alone["optimizer"] / 16)
        assert shared["weights"] == pytest.approx(alone["weights"])


def test_expert_states_are_divided_by_the_expert_group_and_not_by_dp() -> None:
    # 32 GPUs, PP 4: dp 8; EP 8 leaves one copy of each expert, EP 4 two.
    one, two = (components(report(mixtral_8x22b(), ep=ep)) for ep in (8, 4))
    experts = 14 * 8 * 3 * 6144 * 16384
    dense_states = one["optimizer"] - 12 * experts / 8 / GIB
    assert two["optimizer"] == pytest.approx(12 * experts / 4 / 2 / GIB + dense_states)


def test_experts_are_divided_by_etp_only_when_there_is_one() -> None:
    # An estimator that divides routed experts by tp although etp is 1 shows half of this.
    experts = 14 * 8 / 4 * 3 * 6144 * 16384
    for etp, share in ((1, 1), (2, 2)):
        rank = parameters_of(mixtral_8x22b(), tp=2, etp=etp, ep=4)[0]
        assert rank.parameters.routed_experts == experts / share


def test_fsdp2_shards_weights_gradients_and_states_and_gathers_two_units() -> None:
    memory = components(report(llama_70b(), num_nodes=8))
    total = padded_vocab(128256, 128, 1) * 8192 * 2 + 80 * 855_654_400 + 8192
    for name, each in (("weights", 2), ("gradients", 4), ("optimizer", 12)):
        assert memory[name] + memory[f"vocabulary_{name}"] == pytest.approx(
            each * total / 64 / GIB, rel=1e-6
        )
    table = 128256 * 8192
    assert memory["fsdp_gather"] == pytest.approx(3 * 2 * table / GIB, rel=1e-3)


def test_llama_70b_with_fsdp2_on_64_gpus_fits_easily_in_256_gb() -> None:
    assert report(llama_70b(), num_nodes=8).peak.total_gb < 0.65 * 256


def test_fp8_keeps_a_copy_and_a_transpose_of_linear_weights_only() -> None:
    knobs = {"use_torch_fsdp2": False, "use_distributed_optimizer": True}
    memory = components(report(llama_70b(), **knobs, fp8="hybrid"))
    linear = 80 * (8192 * 8192 * 2 + 2 * 8192 * 1024 + 3 * 8192 * 28672)
    assert memory["fp8_weights"] == pytest.approx(2 * linear / GIB)
    precision = Precision(fp8_weight_transpose_cache=False)
    lean = llama_70b().model_copy(update={"precision": precision})
    assert components(report(lean, **knobs, fp8="hybrid"))["fp8_weights"] == pytest.approx(
        linear / GIB
    )


def test_precision_fields_set_the_bytes_of_gradients_and_moments() -> None:
    aware = Precision(main_grads_dtype="bf16", exp_avg_dtype="bf16", exp_avg_sq_dtype="bf16")
    knobs = {"use_torch_fsdp2": False, "use_distributed_optimizer": False, "tp": 8, "pp": 4}
    plain = components(report(llama_70b(), **knobs))
    lean = components(report(llama_70b().model_copy(update={"precision": aware}), **knobs))
    assert lean["gradients"] == pytest.approx(plain["gradients"] / 2)
    assert lean["optimizer"] == pytest.approx(plain["optimizer"] * 8 / 12)


def test_in_flight_activations_follow_the_schedule_rank_by_rank() -> None:
    memory = report(mixtral_8x22b(mbs=1, gbs=256), ep=8)
    per_rank = [components(memory, rank)["activations"] for rank in range(4)]
    inner = per_rank[2] / 2
    assert per_rank[1] == pytest.approx(3 * inner)
    assert per_rank[0] == pytest.approx(4 * inner, rel=1e-3)
    assert memory.heaviest == 0


def test_fewer_microbatches_than_stages_hold_fewer_activations() -> None:
    few = components(report(mixtral_8x22b(mbs=1, gbs=16)))["activations"]
    many = components(report(mixtral_8x22b(mbs=1, gbs=256)))["activations"]
    assert few == pytest.approx(many / 2, rel=1e-3)


def test_full_recompute_keeps_inputs_and_one_live_layer() -> None:
    block = {"recompute_granularity": "full", "recompute_method": "block"}
    none = components(report(mixtral_8x22b(mbs=1)))
    some = components(report(mixtral_8x22b(mbs=1), **block, recompute_num_layers=14))
    kept_input = 2 * 8192 * 6144 / GIB
    assert some["activation_checkpoints"] == pytest.approx(4 * 14 * kept_input)
    assert "activations" not in some or some["activations"] < 1e-3
    layer = none["activations"] / 4 / 14
    assert some["recompute_working_set"] == pytest.approx(layer - kept_input, rel=1e-3)


def test_block_counts_layers_per_virtual_stage() -> None:
    knobs = {
        "recompute_granularity": "full",
        "recompute_method": "block",
        "vpp": 2,
        "pp_schedule": "interleaved",
    }
    three = report(mixtral_8x22b(mbs=1, gbs=256), **knobs, recompute_num_layers=3)
    seven = report(mixtral_8x22b(mbs=1, gbs=256), **knobs, recompute_num_layers=7)
    more = report(mixtral_8x22b(mbs=1, gbs=256), **knobs, recompute_num_layers=14)
    assert more.peak.total_gb == seven.peak.total_gb < three.peak.total_gb
    # 7 layers a chunk, 3 recomputed: 4 of 7 keep their tensors.
    none = report(mixtral_8x22b(mbs=1, gbs=256), vpp=2, pp_schedule="interleaved")
    kept = components(three)["activations"] / components(none)["activations"]
    assert kept == pytest.approx(4 / 7, rel=1e-3)


def test_uniform_keeps_one_input_per_unit_and_brings_a_whole_unit_back() -> None:
    full = {"recompute_granularity": "full", "recompute_method": "uniform"}
    one, seven = (
        components(report(mixtral_8x22b(mbs=1), **full, recompute_num_layers=n)) for n in (1, 7)
    )
    assert seven["activation_checkpoints"] == pytest.approx(one["activation_checkpoints"] / 7)
    assert seven["recompute_working_set"] > 6.9 * one["recompute_working_set"]


def test_recomputed_layer_ids_are_the_ones_that_stop_saving() -> None:
    ids = {"recompute_granularity": "full", "recompute_layer_ids": tuple(range(14))}
    memory = report(mixtral_8x22b(mbs=1), **ids)
    plain = report(mixtral_8x22b(mbs=1))
    assert components(memory, 0).get("activations", 0) < 1e-3
    assert components(memory, 1)["activations"] == components(plain, 1)["activations"]
    assert memory.heaviest == 1


def test_selective_core_attention_saves_its_scores_once_and_nothing_under_flash() -> None:
    selective = {"recompute_granularity": "selective", "recompute_modules": ("core_attn",)}
    workload = mixtral_8x22b(mbs=1)
    none, some = report(workload).peak, report(workload, **selective).peak
    lse = 4 * 14 * 4 * 8192 * 48 / GIB
    saving = none.components["activations"] - some.components["activations"]
    assert saving == pytest.approx(lse)
    unfused = workload.model_copy(update={"flash_attention": False})
    none, some = report(unfused).peak, report(unfused, **selective).peak
    scores = 4 * 14 * 2 * 48 * 8192 * 8192 / GIB
    saving = none.components["activations"] - some.components["activations"]
    assert saving == pytest.approx(scores)


def test_recomputed_expert_activations_are_the_ones_that_go() -> None:
    selective = {"recompute_granularity": "selective", "recompute_modules": ("moe_act",)}
    none, some = (
        report(mixtral_8x22b(mbs=1), **knobs).peak.components["activations"]
        for knobs in ({}, selective)
    )
    assert none - some == pytest.approx(4 * 14 * 2 * 8192 * 2 * 16384 / GIB)


def test_imbalance_raises_what_the_busiest_rank_keeps() -> None:
    free = mixtral_8x22b(mbs=1).model_copy(update={"force_load_balancing": False})
    even = report(free, imbalance=MoeImbalance(layer=1.0, pooled=1.0)).peak
    skewed = report(free, imbalance=MoeImbalance(layer=1.5, pooled=1.0)).peak
    routed = 4 * 14 * 2 * 8192 * 2 * (6144 + 3 * 16384) / GIB
    more = skewed.components["activations"] - even.components["activations"]
    assert more == pytest.approx(routed / 2, rel=1e-2)


@pytest.mark.parametrize("workload", [llama_70b(), mixtral_8x22b(), deepseek_v3()])
def test_components_sum_to_each_ranks_total_and_the_heaviest_is_named(workload: Workload) -> None:
    memory = report(workload, num_nodes=16)
    for rank in memory.ranks:
        assert sum(rank.components.values()) == rank.total_gb
        assert set(rank.components) <= set(LINES)
        assert sum(parts(rank.components).values()) == pytest.approx(rank.total_gb)
    assert memory.peak.total_gb == max(rank.total_gb for rank in memory.ranks)
