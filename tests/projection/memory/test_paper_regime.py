"""Regime `paper`: the published Mixtral 8x22B table, to its printed digits.

Facts: Primus Projection, arXiv 2610.19423, memory table of Mixtral 8x22B on 32 MI355X (BF16, PP 4,
EP 8, VPP 2, mbs 1, no recompute) and appendix B.1.
"""

import pytest

from projection.memory.overheads import GIB
from projection.memory.paper import (
    VOCABULARY,
    in_flight_factor,
    layer_activation,
    layer_parameters,
    paper_memory,
)
from projection.stages import stage_map
from schemas.architecture import Architecture
from tests.builders import mixtral_8x22b, mixtral_architecture

MIXTRAL = mixtral_architecture()
TOKENS = 8192


def test_the_mixtral_table_comes_out_to_the_printed_digits() -> None:
    workload = mixtral_8x22b(mbs=1, vpp=2, pp_schedule="interleaved")
    trial = workload.baseline
    stages = stage_map(MIXTRAL, trial.pp_schedule, trial.pp, trial.vpp)
    memory = paper_memory(workload, trial, stages, 32)
    assert memory.parameters == 6_078_750_720
    assert round(memory.param_optimizer_gb, 2) == 79.26
    assert round(memory.activation_gb, 2) == 197.83
    assert round(memory.param_optimizer_gb + memory.activation_gb, 2) == 277.09


def test_every_module_row_of_the_table_comes_out() -> None:
    dense = layer_activation(MIXTRAL, TOKENS, moe=False, flash=True)
    moe = layer_activation(MIXTRAL, TOKENS, moe=True, flash=True)
    rows = {
        "norm": (dense.norms / 3, 0.094),
        "residual": (dense.residuals / 2, 0.094),
        "attention": (dense.attention, 0.313),
        "dense mlp": (dense.mlp, 0.844),
        "dense layer": (dense.total, 1.625),
        "router": (moe.router, 0.094),
        "expert mlp": (moe.mlp, 1.688),
        "moe layer": (moe.total, 2.563),
        "output": (2.0 * TOKENS * VOCABULARY, 1.531),
    }
    for name, (num_bytes, printed) in rows.items():
        assert num_bytes / GIB == pytest.approx(printed, abs=5.1e-4), name
    parameters = {
        "embedding": (VOCABULARY * 6144, 0.6166),
        "dense layer": (layer_parameters(MIXTRAL, moe=False, ep=8), 0.3901),
        "moe layer, one expert per rank": (layer_parameters(MIXTRAL, moe=True, ep=8), 0.3902),
    }
    for name, (count, printed) in parameters.items():
        assert count / 1e9 == pytest.approx(printed, abs=5.1e-5), name


def test_the_worked_example_of_the_appendix_comes_out_with_its_inferred_inputs() -> None:
    """mbs 4, S 16384, CP 4, H 8192, e 2048, top-k 36: 16.19 GB MoE, 0.51 attention, 18.20 layer.

    The text leaves inputs out. Inferred because they reproduce the digits: one shared expert of
    width e (37 copies), and 32 heads of 128 with one KV head.
    """
    model = Architecture(
        name="appendix-b1",
        num_layers=1,
        hidden_size=8192,
        ffn_hidden_size=2048,
        num_attention_heads=32,
        num_query_groups=1,
        kv_channels=128,
        vocab_size=VOCABULARY,
        num_experts=64,
        moe_router_topk=36,
        moe_ffn_hidden_size=2048,
        shared_expert_hidden_size=2048,
        moe_layers=(True,),
    )
    tokens = 4 * 16384 // 4
    layer = layer_activation(model, tokens, moe=True, flash=True)
    assert round(layer.mlp / GIB, 2) == 16.19
    assert round(layer.attention / GIB, 2) == 0.51
    # 16.1875 + 0.5078 + six blocks of 0.25 = 18.195, printed 18.20.
    assert layer.total / GIB == pytest.approx(18.20, abs=0.006)
    assert 2 * tokens * 8192 / GIB == 0.25


def test_in_flight_factor_is_pp_times_penalty_and_never_more_than_the_batch_has() -> None:
    assert in_flight_factor(4, 1, 128) == 4
    assert in_flight_factor(4, 2, 128) == 4 * 1.375
    assert in_flight_factor(8, 1, 2) == 2
