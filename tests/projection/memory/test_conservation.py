"""Laws that hold for every configuration."""

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from projection.parameters import model_size, padded_vocab
from schemas.workload import Workload
from tests.builders import deepseek_v3, small_dense, small_moe
from tests.projection.memory.reports import parameters_of, report, static_gb

TOLERANCE_GB = 1e-9


def with_everything() -> Workload:
    """A small model with every bucket: latent attention, shared experts, MTP, dense and MoE."""
    base = deepseek_v3(layout=None, recompute_layer_ids=(), recompute_granularity="none")
    architecture = base.architecture.model_copy(
        update={
            "num_layers": 8,
            "hidden_size": 256,
            "ffn_hidden_size": 512,
            "num_attention_heads": 8,
            "num_query_groups": 8,
            "vocab_size": 1000,
            "q_lora_rank": 64,
            "kv_lora_rank": 32,
            "num_experts": 8,
            "moe_router_topk": 2,
            "moe_ffn_hidden_size": 128,
            "shared_expert_hidden_size": 256,
            "moe_layers": (False,) * 2 + (True,) * 6,
            "mtp_num_layers": 1,
        }
    )
    plain = base.baseline.model_copy(
        update={"pp": 1, "vpp": 1, "mbs": 1, "gbs": 64, "ep": 1, "pp_schedule": "1f1b"}
    )
    return base.model_copy(
        update={"architecture": architecture, "baseline": plain, "seq_length": 256}
    )


SIZES = st.sampled_from([1, 2, 4])


@settings(max_examples=60, deadline=None)
@given(tied=st.booleans(), tp=SIZES, etp=SIZES, ep=SIZES, pp=SIZES, vpp=st.sampled_from([1, 2]))
def test_over_all_ranks_and_shards_the_parameters_sum_to_the_model(
    tied: bool, tp: int, etp: int, ep: int, pp: int, vpp: int
) -> None:
    assume(vpp == 1 or pp > 1)
    base = with_everything()
    a = base.architecture.model_copy(update={"tied_embeddings": tied})
    workload = base.model_copy(update={"architecture": a})
    schedule = "interleaved" if vpp > 1 else "1f1b"
    ranks = parameters_of(workload, tp=tp, etp=etp, ep=ep, pp=pp, vpp=vpp, pp_schedule=schedule)
    total = 0.0
    for rank in ranks:
        held = rank.parameters
        total += held.tp_sharded * tp + held.replicated + held.routed_experts * ep * etp
        total -= rank.copies * tp
    vocab = padded_vocab(a.vocab_size, workload.make_vocab_size_divisible_by, tp)
    padding = (vocab - a.vocab_size) * a.hidden_size * (1 if tied else 2)
    size = model_size(a)
    assert total == pytest.approx(size.total + size.mtp + padding, rel=1e-12)


LEVERS = st.fixed_dictionaries(
    {
        "pp": st.sampled_from([1, 2, 4]),
        "ep": st.sampled_from([1, 2]),
        "fp8": st.sampled_from(["none", "hybrid"]),
        "use_distributed_optimizer": st.booleans(),
        "cross_entropy_loss_fusion": st.booleans(),
        "use_turbo_deepep": st.booleans(),
    }
)


def peak(workload: Workload, levers: dict[str, Any], mbs: int, layers: int) -> float:
    recompute = {
        "recompute_granularity": "full" if layers else "none",
        "recompute_method": "block" if layers else None,
        "recompute_num_layers": layers,
    }
    dp = 8 // levers["pp"]
    knobs = {**levers, **recompute, "mbs": mbs, "gbs": 4 * mbs * dp}
    return report(workload, num_nodes=1, **knobs).peak.total_gb


@settings(max_examples=40, deadline=None)
@given(
    model=st.sampled_from(["mixture", "dense", "everything"]),
    levers=LEVERS,
    mbs=st.sampled_from([1, 2, 4]),
    layers=st.integers(0, 4),
)
def test_raising_mbs_or_the_sequence_or_recomputing_less_never_lowers_memory(
    model: str, levers: dict[str, Any], mbs: int, layers: int
) -> None:
    made = {"mixture": small_moe, "dense": small_dense, "everything": with_everything}
    workload = made[model]()
    if not workload.architecture.is_moe:
        levers = {**levers, "ep": 1, "use_turbo_deepep": False}
    here = peak(workload, levers, mbs, layers)
    longer = workload.model_copy(update={"seq_length": 2 * workload.seq_length})
    assert peak(workload, levers, 2 * mbs, layers) >= here
    assert peak(longer, levers, mbs, layers) >= here
    if layers:
        assert here <= peak(workload, levers, mbs, layers - 1) + TOLERANCE_GB


@settings(max_examples=40, deadline=None)
@given(
    lever=st.sampled_from(["tp and ep", "pp"]),
    tp=st.sampled_from([1, 2]),
    ep=st.sampled_from([1, 2]),
    pp=st.sampled_from([1, 2]),
    sharded=st.booleans(),
)
def test_more_shards_at_fixed_dp_and_edp_never_raise_static_memory(
    lever: str, tp: int, ep: int, pp: int, sharded: bool
) -> None:
    def heaviest(nodes: int, **sizes: int) -> float:
        memory = report(
            small_moe(),
            num_nodes=nodes,
            mbs=1,
            gbs=64,
            use_distributed_optimizer=sharded,
            **sizes,
        )
        return max(static_gb(rank) for rank in memory.ranks)

    # dp and edp stay: the world doubles with pp, or with tp and ep together
    # (etp is 1, so ep alone would take its ranks from edp).
    before = {"tp": tp, "etp": 1, "ep": ep * tp, "pp": pp}
    world = tp * pp
    after = dict(before)
    if lever == "pp":
        after["pp"] = 2 * pp
    else:
        after["tp"], after["ep"] = 2 * tp, 2 * ep * tp
    assume(after["ep"] <= 4)
    assert heaviest(2 * world, **after) <= heaviest(world, **before) + TOLERANCE_GB
