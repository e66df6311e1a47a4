"""Every figure of a breakdown can be taken apart into numbers that make it up."""

from typing import Any

import pytest

from projection.memory.lines import LINES, line
from projection.memory.terms import TERMS
from projection.oracle import Oracle
from schemas.errors import UserError
from schemas.evaluation import SignatureHashes
from schemas.search import SearchSpec
from schemas.workload import Precision, Workload
from tests.builders import cluster, deepseek_v3, llama_70b, mixtral_8x22b, small_dense

SIGNATURE = SignatureHashes(model="0" * 16, cluster="0" * 16, stack="0" * 16)


def oracle(workload: Workload, num_nodes: int = 4, **fields: Any) -> Oracle:
    on = cluster(num_nodes, **fields)
    return Oracle(workload, on, SearchSpec(), signature=SIGNATURE)


CASES = {
    "mixtral": (mixtral_8x22b(), 4),
    "llama-fsdp2-recompute": (llama_70b(), 8),
    "llama-fsdp2-fp8": (llama_70b(fp8="hybrid"), 8),
    "deepseek": (deepseek_v3(), 16),
    "zero-bubble": (mixtral_8x22b(mbs=1, pp_schedule="zero-bubble"), 4),
    "v-shaped": (mixtral_8x22b(mbs=1, vpp=2, pp_schedule="zbv-greedy-half"), 4),
    "selective": (mixtral_8x22b(recompute_granularity="selective", recompute_modules=("moe",)), 4),
    "fp8-primary": (
        llama_70b(fp8="hybrid", use_torch_fsdp2=False, tp=8).model_copy(
            update={"precision": Precision(fp8_param_gather=True)}
        ),
        4,
    ),
    "building": (
        llama_70b(
            use_torch_fsdp2=False, use_distributed_optimizer=True, tp=2, recompute_num_layers=80
        ).model_copy(update={"seq_length": 128}),
        16,
    ),
    "dense": (small_dense(cross_entropy_loss_fusion=False), 1),
}


@pytest.mark.parametrize("case", sorted(CASES))
def test_the_terms_of_every_line_of_every_rank_add_up_to_it(case: str) -> None:
    workload, num_nodes = CASES[case]
    explained = oracle(workload, num_nodes).explain(workload.baseline)
    for rank in range(workload.baseline.pp):
        lines = explained.lines(rank)
        assert [one.gb for one in lines] == sorted((one.gb for one in lines), reverse=True)
        for one in lines:
            total = sum(term.total for term in one.terms) / 2**30
            assert total == pytest.approx(one.gb, rel=1e-9, abs=1e-9), (rank, one.name)


def test_every_line_has_a_tag_a_source_an_equation_and_terms() -> None:
    assert set(LINES) == set(TERMS)
    for one in LINES.values():
        assert one.tag in ("measured", "estimated", "derived")
        assert one.source
        assert one.equation
        assert one.what


def test_ranks_are_summed_by_part() -> None:
    workload = mixtral_8x22b()
    explained = oracle(workload).explain(workload.baseline)
    for row in explained.summary():
        assert sum(row.parts.values()) == pytest.approx(row.total_gb)


def test_a_component_that_is_none_is_refused_with_the_nearest() -> None:
    with pytest.raises(UserError) as refused:
        line("activation")
    assert "activations" in str(refused.value.hint)


def test_the_largest_imbalance_that_fits_is_where_memory_meets_the_cap() -> None:
    workload = mixtral_8x22b(mbs=2)
    asked = oracle(workload)
    trial = workload.baseline.model_copy(
        update={
            "recompute_granularity": "full",
            "recompute_method": "block",
            "recompute_num_layers": 8,
        }
    )
    evaluation = asked.memory(trial)
    limit = asked.largest_imbalance(trial)
    assert evaluation.fits
    assert evaluation.moe_imbalance == 1.0
    assert limit is not None
    assert 1 < limit < 8

    def peak(imbalance: float) -> float:
        free = workload.model_copy(update={"force_load_balancing": False})
        ratio = {"moe_imbalance": {"layer": imbalance, "pooled": 1.0}}
        return oracle(free, **ratio).memory(trial).memory_per_gpu_gb or 0.0

    assert peak(limit) <= asked.cluster.cap_gb < peak(limit + 0.01)


def test_there_is_no_imbalance_without_experts_or_without_room() -> None:
    dense = small_dense()
    assert oracle(dense, 1).largest_imbalance(dense.baseline) is None
    full = mixtral_8x22b(mbs=8)
    assert oracle(full).largest_imbalance(full.baseline) is None
    small = mixtral_8x22b(
        mbs=1, recompute_granularity="full", recompute_method="uniform", recompute_num_layers=1
    )
    # One expert per rank gets one of a token's two copies at most: half of all, of a mean of 1/8.
    assert oracle(small).largest_imbalance(small.baseline) == 4.0


@pytest.mark.parametrize(
    ("workload", "knobs", "said"),
    [
        (
            llama_70b(),
            {"recompute_granularity": "selective", "recompute_modules": ("moe_act",)},
            "moe_act",
        ),
        (
            mixtral_8x22b(),
            {"recompute_granularity": "selective", "recompute_modules": ("mla_up_proj",)},
            "mla_up_proj",
        ),
        (
            mixtral_8x22b(),
            {
                "recompute_granularity": "full",
                "recompute_method": "block",
                "recompute_num_layers": 0,
            },
            "no layer",
        ),
        (
            mixtral_8x22b(),
            {"recompute_granularity": "full", "recompute_layer_ids": (99,)},
            "no layer",
        ),
    ],
)
def test_recomputation_that_frees_nothing_says_so(
    workload: Workload, knobs: dict[str, Any], said: str
) -> None:
    plain = {"recompute_granularity": "none", "recompute_num_layers": 0}
    trial = workload.baseline.model_copy(update={**plain, **knobs})
    asked = oracle(workload, 8)
    without = asked.memory(workload.baseline.model_copy(update=plain))
    evaluation = asked.memory(trial)
    assert any(said in warning and "nothing" in warning for warning in evaluation.warnings)
    assert evaluation.memory_per_gpu_gb == pytest.approx(without.memory_per_gpu_gb)
    assert not any("nothing" in warning for warning in without.warnings)
