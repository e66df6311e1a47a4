"""Mistakes that estimators in use have made, from public reports: each a case that must be right.

Where a number is given, it is the reporter's or follows from the shapes beside it.
"""

import pytest

from projection.profiles import gpu_profile
from projection.stages import stage_map
from schemas.workload import Workload
from tests.builders import cluster, llama_70b, mixtral_8x22b, small_dense
from tests.projection.memory.reports import (
    GIB,
    components,
    parameters_of,
    report,
    static_gb,
)

EXPERT = 3 * 6144 * 16384
"""Parameters of one expert of Mixtral 8x22B."""


def test_experts_are_not_divided_by_tp_when_etp_is_one() -> None:
    for tp in (1, 2, 4):
        rank = parameters_of(mixtral_8x22b(), tp=tp, etp=1, ep=4)[0]
        assert rank.parameters.routed_experts == 14 * 8 / 4 * EXPERT


def test_moe_activations_are_not_those_of_a_dense_layer_of_the_same_width() -> None:
    moe = mixtral_8x22b(mbs=1)
    dense = moe.model_copy(
        update={
            "architecture": moe.architecture.model_copy(
                update={"num_experts": None, "moe_layers": (), "moe_ffn_hidden_size": None}
            )
        }
    )
    routed, plain = (
        components(report(w, ep=ep))["activations"] for w, ep in ((moe, 8), (dense, 1))
    )
    # Top-2: twice the expert widths, and a copy of the input per routed row beside the router's.
    per_layer = 2 * 8192 * (3 * 16384 + 2 * 6144) / GIB
    assert routed - plain == pytest.approx(4 * 14 * per_layer, rel=1e-2)


def uneven(pp: int, **knobs: object) -> Workload:
    base = small_dense(pp=pp, mbs=1, gbs=64, **knobs)
    wide = {"num_layers": 8, "hidden_size": 4096, "ffn_hidden_size": 14336, "vocab_size": 128}
    architecture = base.architecture.model_copy(update=wide)
    return base.model_copy(update={"architecture": architecture})


def test_uneven_stages_are_not_averaged() -> None:
    workload = uneven(4, layout="Et|t*2|t*2|t*3,L")
    memory = report(workload, num_nodes=1)
    layers = [static_gb(rank) / static_gb(memory.ranks[1]) * 2 for rank in memory.ranks]
    assert [round(count) for count in layers] == [1, 2, 2, 3]
    # The average of two layers is 31.8 % less than the rank that decides has.
    average = sum(static_gb(rank) for rank in memory.ranks) / 4
    assert 1 - average / max(static_gb(rank) for rank in memory.ranks) > 0.31


def test_optimizer_states_are_there_after_the_first_step_and_in_the_peak() -> None:
    knobs = {"use_torch_fsdp2": False, "use_distributed_optimizer": False, "tp": 8, "pp": 4}
    peak = report(llama_70b(), **knobs).peak
    assert peak.phase == "steady"
    parameters = parameters_of(llama_70b(), **knobs)[0].parameters.total
    grown = peak.phases_gb["steady"] - peak.phases_gb["first_step"]
    assert grown == pytest.approx(8 * parameters / GIB)
    assert peak.total_gb == pytest.approx(peak.phases_gb["steady"])


def test_thirty_layers_over_four_stages_are_thirty_layers() -> None:
    architecture = small_dense().architecture.model_copy(update={"num_layers": 30})
    stages = stage_map(architecture, "1f1b", 4, 1)
    counts = [len(chunk.layers) for rank in stages.chunks for chunk in rank]
    assert counts == [8, 8, 7, 7]


def test_selective_recomputation_is_not_counted_twice() -> None:
    workload = mixtral_8x22b(mbs=1).model_copy(update={"flash_attention": False})
    none, some = (
        components(report(workload, recompute_granularity=how))["activations"]
        for how in ("none", "selective")
    )
    scores = 2 * 48 * 8192 * 8192 / GIB
    assert none - some == pytest.approx(4 * 14 * scores)


def test_recomputed_layer_ids_are_not_ignored() -> None:
    ids = {"recompute_granularity": "full", "recompute_layer_ids": (0, 1, 2)}
    none, some = (report(mixtral_8x22b(mbs=1), **knobs) for knobs in ({}, ids))
    saved = components(none)["activations"] * (1 - 11 / 14)
    assert components(none)["activations"] - components(some)["activations"] == pytest.approx(
        saved, rel=1e-6
    )
    assert components(some, 1)["activations"] == components(none, 1)["activations"]


def test_nameplate_memory_is_not_offered_as_usable() -> None:
    gpu = gpu_profile("mi325x")
    # Out-of-memory messages on MI325X: "a total capacity of 251.98 GiB" of the 256.
    assert cluster(gpu=gpu, memory_safety_margin=0.0).cap_gb == 251.98
    assert cluster(gpu=gpu).cap_gb == pytest.approx(256 * 0.9)


def test_tensor_parallelism_divides_weights_and_states() -> None:
    knobs = {"use_torch_fsdp2": False, "use_distributed_optimizer": False, "mbs": 8, "gbs": 256}
    one, eight = (static_gb(report(llama_70b(), **knobs, tp=tp).peak) for tp in (1, 8))
    replicated = (2 * 80 + 1) * 8192 * 18 / GIB
    assert eight == pytest.approx((one - replicated) / 8 + replicated, rel=1e-3)


def test_fsdp2_shards_weights_and_gradients_and_not_only_states() -> None:
    memory = report(llama_70b(), num_nodes=8)
    assert static_gb(memory.peak) == pytest.approx(70.55e9 * 18 / 64 / GIB, rel=2e-3)
    assert memory.peak.total_gb < 0.65 * 256
