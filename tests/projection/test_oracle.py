"""The oracle as a whole: every knob moves the numbers the right way, or says why it does not."""

from dataclasses import dataclass
from typing import Any

import pytest

from projection.gemm import gemm_model
from projection.oracle import Oracle
from projection.profiles import gpu_profile
from projection.signature import signature_of
from schemas.cluster import Cluster
from schemas.evaluation import Evaluation, SignatureHashes
from schemas.search import SearchSpec
from schemas.workload import Precision, Workload
from tests.builders import (
    a100,
    cluster,
    deepseek_v3,
    llama_70b,
    mixtral_8x22b,
    small_dense,
    small_moe,
)

SIGNATURE = SignatureHashes(model="0" * 16, cluster="0" * 16, stack="0" * 16)
TILE = SearchSpec(gemm_backend="tile")
PLAIN = {
    "use_torch_fsdp2": False,
    "use_distributed_optimizer": True,
    "recompute_granularity": "none",
    "recompute_method": None,
    "recompute_num_layers": 0,
    "overlap_param_gather": True,
    "cross_entropy_loss_fusion": True,
    "overlap_grad_reduce": True,
}


def oracle_of(workload: Workload, on: Cluster) -> Oracle:
    return Oracle(workload, on, TILE, signature=SIGNATURE)


CASES: dict[str, tuple[Workload, Cluster, dict[str, Any]]] = {
    "dense, 1 node": (llama_70b(), cluster(1), {**PLAIN, "tp": 4, "gbs": 64}),
    "dense, 4 nodes": (llama_70b(), cluster(4), {**PLAIN, "tp": 4, "pp": 2, "gbs": 64}),
    "moe, 1 node": (mixtral_8x22b(), cluster(1), {**PLAIN, "pp": 1, "ep": 4, "mbs": 1, "gbs": 64}),
    "moe, 4 nodes": (mixtral_8x22b(), cluster(4), {**PLAIN, "ep": 4, "mbs": 1, "gbs": 64}),
}


@dataclass(frozen=True)
class Knob:
    """A change, and what it must do: '+', '-' or '0' to memory and to time, by case.

    A '0' needs a reason code in the evaluation; '?' says that the direction depends on the sizes.
    """

    name: str
    change: dict[str, Any]
    memory: str
    time: str
    only: tuple[str, ...] = tuple(CASES)
    given: tuple[tuple[str, Any], ...] = ()


MOE = ("moe, 1 node", "moe, 4 nodes")
DENSE = ("dense, 1 node", "dense, 4 nodes")
PIPELINED = ("dense, 4 nodes", "moe, 4 nodes")
FULL_4 = (
    ("recompute_granularity", "full"),
    ("recompute_method", "block"),
    ("recompute_num_layers", 4),
)

KNOBS = [
    Knob("tp", {"tp": 8}, "-", "+", DENSE),
    Knob("pp", {"pp": 2}, "-", "?", ("dense, 1 node", "moe, 1 node")),
    Knob("ep", {"ep": 8}, "-", "?", MOE),
    Knob("ep", {"ep": 2}, "0", "0", DENSE),
    Knob("etp", {"tp": 2, "etp": 2}, "-", "?", MOE, (("tp", 2), ("etp", 1))),
    Knob("etp", {"etp": 2}, "0", "0", DENSE),
    Knob("cp", {"cp": 2}, "-", "+", ("dense, 1 node", "moe, 1 node")),
    # Half the replicas means twice the microbatches, which shrinks the bubble.
    Knob("cp", {"cp": 2}, "-", "?", PIPELINED),
    Knob("vpp", {"vpp": 2, "pp_schedule": "interleaved"}, "+", "-", PIPELINED),
    Knob("mbs", {"mbs": 2}, "+", "-", ("dense, 1 node", "moe, 1 node")),
    Knob("mbs", {"mbs": 2}, "+", "?", PIPELINED),
    Knob("gbs", {"gbs": 128}, "0", "+"),
    Knob("recompute_granularity", dict(FULL_4), "-", "+"),
    Knob(
        "recompute_granularity",
        {"recompute_granularity": "selective", "recompute_modules": ("core_attn",)},
        "-",
        "+",
    ),
    Knob("recompute_num_layers", {"recompute_num_layers": 8}, "-", "+", given=FULL_4),
    Knob("recompute_num_layers", {"recompute_num_layers": 8}, "0", "0"),
    Knob("overlap_grad_reduce", {"overlap_grad_reduce": False}, "0", "+"),
    Knob("overlap_param_gather", {"overlap_param_gather": False}, "0", "+"),
    Knob(
        "overlap_param_gather",
        {"overlap_param_gather": False},
        "0",
        "0",
        given=(("use_distributed_optimizer", False),),
    ),
    Knob(
        "cross_entropy_loss_fusion",
        {"cross_entropy_loss_fusion": False},
        "+",
        "+",
        ("dense, 1 node", "moe, 1 node"),
    ),
    Knob("cross_entropy_loss_fusion", {"cross_entropy_loss_fusion": False}, "0", "+", PIPELINED),
    Knob("use_distributed_optimizer", {"use_distributed_optimizer": False}, "+", "+"),
    Knob(
        "use_torch_fsdp2",
        {"use_torch_fsdp2": True, "use_distributed_optimizer": False},
        "-",
        "+",
        ("dense, 1 node",),
    ),
    Knob("use_turbo_deepep", {"use_turbo_deepep": True}, "?", "-", MOE),
    Knob("use_turbo_deepep", {"use_turbo_deepep": True}, "0", "0", DENSE),
    Knob("sync_free_stage", {"sync_free_stage": 1}, "0", "-", MOE),
    Knob("sync_free_stage", {"sync_free_stage": 2}, "+", "-", MOE, (("use_turbo_deepep", True),)),
    Knob("sync_free_stage", {"sync_free_stage": 1}, "0", "0", DENSE),
    Knob("target_ep_size", {"target_ep_size": 16}, "0", "+", MOE),
    Knob("target_ep_size", {"target_ep_size": 16}, "0", "0", DENSE),
    Knob("fp8", {"fp8": "hybrid"}, "?", "-"),
    Knob("pp_schedule", {"pp_schedule": "zero-bubble"}, "?", "-", ("moe, 4 nodes",)),
    Knob("pp_schedule", {"pp_schedule": "zbv-formatted", "vpp": 2}, "?", "-", ("moe, 4 nodes",)),
    # With tp, a deferred weight gradient leaves the reduce-scatter nothing to hide behind.
    Knob("pp_schedule", {"pp_schedule": "zero-bubble"}, "?", "?", ("dense, 4 nodes",)),
    Knob(
        "pp_schedule",
        {"pp_schedule": "zbv-greedy-min"},
        "-",
        "+",
        ("moe, 4 nodes",),
        (("pp_schedule", "zbv-formatted"), ("vpp", 2)),
    ),
    # With one stage the normal form of every schedule without chunks is 1F1B.
    Knob("pp_schedule", {"pp_schedule": "1f1b"}, "0", "0", ("dense, 1 node", "moe, 1 node")),
]
ROWS = [
    pytest.param(knob, case, id=f"{knob.name}={next(iter(knob.change.values()))}-{case}-{index}")
    for index, knob in enumerate(KNOBS)
    for case in knob.only
]


def sign(before: float | None, after: float | None) -> str:
    assert before is not None
    assert after is not None
    change = (after - before) / before
    return "0" if abs(change) < 1e-12 else "+" if change > 0 else "-"


@pytest.mark.parametrize(("knob", "case"), ROWS)
def test_every_knob_moves_memory_and_time_as_expected_or_says_why_not(
    knob: Knob, case: str
) -> None:
    workload, on, knobs = CASES[case]
    base = workload.baseline.model_copy(update={**knobs, **dict(knob.given)})
    oracle = oracle_of(workload, on)
    before = oracle.project(base)
    after = oracle.project(base.model_copy(update=knob.change))
    assert before.legal, before.reason
    assert after.legal, after.reason
    measured = {
        "memory": sign(before.memory_per_gpu_gb, after.memory_per_gpu_gb),
        "time": sign(before.iteration_ms, after.iteration_ms),
    }
    reasons = {**after.zero_delta_reasons, **before.zero_delta_reasons}
    for quantity, expected in (("memory", knob.memory), ("time", knob.time)):
        if expected == "?":
            assert measured[quantity] != "0", quantity
            continue
        assert measured[quantity] == expected, (quantity, before, after)
        if expected == "0":
            assert knob.name in reasons or f"{knob.name}.{quantity}" in reasons, quantity


@pytest.mark.parametrize("case", CASES)
def test_a_reason_for_no_change_is_never_given_where_there_is_one(case: str) -> None:
    workload, on, knobs = CASES[case]
    oracle = oracle_of(workload, on)
    base = workload.baseline.model_copy(update=knobs)
    before = oracle.project(base)
    for knob in KNOBS:
        if case not in knob.only or knob.given:
            continue
        after = oracle.project(base.model_copy(update=knob.change))
        for quantity in ("memory", "time"):
            keys = (knob.name, f"{knob.name}.{quantity}")
            if any(key in before.zero_delta_reasons for key in keys):
                field = {"memory": "memory_per_gpu_gb", "time": "iteration_ms"}[quantity]
                assert sign(getattr(before, field), getattr(after, field)) == "0", knob


IMPOSSIBLE = [
    ({"tp": 3}, "world_not_tiled", "tp·cp·pp = 3·1·4 = 12 does not divide the 32 GPUs"),
    ({"pp": 64}, "world_not_tiled", "tp·cp·pp = 1·1·64 = 64 exceeds the 32 GPUs"),
    ({"ep": 16}, "world_not_tiled", "etp·ep·pp = 1·16·4 = 64 exceeds the 32 GPUs"),
    ({"gbs": 100}, "gbs_not_divisible", "gbs 100 is not a multiple of mbs·dp = 2·8 = 16"),
    ({"ep": 16, "pp": 2}, "ep_experts", "ep 16 does not divide the 8 experts"),
    ({"vpp": 0}, "not_positive", "vpp is 0, it must be at least 1"),
    ({"gbs": 2**400}, "gbs_too_large", "gbs is above 16,777,216, the largest"),
    ({"layout": "Et*28|t*28L"}, "layout_mismatch", "2 stages, pp·vpp is 4"),
    ({"vpp": 2}, "schedule_vpp", "vpp"),
]


@pytest.mark.parametrize(("knobs", "code", "reason"), IMPOSSIBLE)
def test_what_cannot_run_is_refused_with_its_numbers_and_never_floored(
    knobs: dict[str, Any], code: str, reason: str
) -> None:
    result = oracle_of(mixtral_8x22b(), cluster(4)).project(
        mixtral_8x22b().baseline.model_copy(update=knobs)
    )
    assert not result.legal
    assert result.reason_code == code
    assert reason.lower() in str(result.reason).lower()
    assert result.iteration_ms is None
    assert result.memory_per_gpu_gb is None


@pytest.mark.parametrize("workload", [llama_70b(gbs=64), mixtral_8x22b(), deepseek_v3()])
def test_an_evaluation_is_valid_by_its_schema_and_survives_json(workload: Workload) -> None:
    oracle = oracle_of(workload, cluster(64))
    for result in (oracle.project(workload.baseline), oracle.memory(workload.baseline)):
        assert Evaluation.model_validate_json(result.model_dump_json()) == result


def test_memory_alone_gives_the_memory_of_a_projection_and_no_time() -> None:
    oracle = oracle_of(mixtral_8x22b(), cluster(4))
    alone, whole = (ask(mixtral_8x22b().baseline) for ask in (oracle.memory, oracle.project))
    assert alone.source == "memory_only"
    assert alone.memory_by_rank_gb == whole.memory_by_rank_gb
    assert alone.iteration_ms is None
    assert not alone.time_breakdown_ms


def test_fit_is_judged_against_the_cap_of_the_heaviest_rank() -> None:
    result = oracle_of(mixtral_8x22b(), cluster(4)).project(mixtral_8x22b().baseline)
    assert result.cap_gb == pytest.approx(288 * 0.9)
    assert result.memory_per_gpu_gb == max(r.total_gb for r in result.memory_by_rank_gb)
    assert result.fits is False
    # The same recipe with half the microbatch is one that has been run on these GPUs in FP8.
    lean = oracle_of(mixtral_8x22b(), cluster(4)).project(
        mixtral_8x22b(mbs=1, fp8="hybrid").baseline
    )
    assert lean.fits is True


def test_regime_paper_shows_the_published_total() -> None:
    workload = mixtral_8x22b(mbs=1, vpp=2, pp_schedule="interleaved")
    search = SearchSpec(gemm_backend="tile", memory_regime="paper")
    result = Oracle(workload, cluster(4), search, signature=SIGNATURE).project(workload.baseline)
    assert result.memory_regime == "paper"
    assert result.memory_per_gpu_gb == pytest.approx(277.09, abs=0.005)
    assert result.iteration_ms is not None


def test_an_uncalibrated_or_lesser_oracle_says_so() -> None:
    auto = SearchSpec()
    on = cluster(4, calibration="none")
    result = Oracle(mixtral_8x22b(), on, auto, signature=SIGNATURE).project(
        mixtral_8x22b().baseline
    )
    assert result.provenance == "analytic"
    assert any(warning.startswith("uncalibrated") for warning in result.warnings)
    assert result.expected_error is not None
    assert result.expected_error.nearest == "none"
    on_amd_without_origami = gemm_model(cluster(4).gpu, "auto").name == "tile"
    assert any("tile model" in warning for warning in result.warnings) == on_amd_without_origami


def test_a_calibrated_oracle_says_how_far_off_it_may_be_by_precision() -> None:
    oracle = oracle_of(mixtral_8x22b(), cluster(4))
    results = {fp8: oracle.project(mixtral_8x22b(fp8=fp8).baseline) for fp8 in ("none", "hybrid")}
    for result in results.values():
        assert result.provenance == "calibrated"
        assert not any(warning.startswith("uncalibrated") for warning in result.warnings)
        assert result.expected_error is not None
        assert result.expected_error.nearest == "gpu and precision"
    assert results["none"].expected_error != results["hybrid"].expected_error
    assert oracle.memory(mixtral_8x22b().baseline).expected_error is None


def test_kins_factors_are_said_to_be_theirs() -> None:
    gpu = gpu_profile("mi350x")
    result = oracle_of(mixtral_8x22b(), cluster(4, gpu=gpu)).project(mixtral_8x22b().baseline)
    assert any("no measured run of mi350x" in warning for warning in result.warnings)
    assert result.expected_error is not None
    assert result.expected_error.nearest == "family and precision"


def test_fp8_on_a_gpu_without_it_is_refused() -> None:
    workload = small_dense(fp8="hybrid")
    result = oracle_of(workload, cluster(1, gpu=a100())).project(workload.baseline)
    assert result.reason_code == "fp8_unsupported"


def test_a_placement_that_cannot_be_folded_is_refused_for_memory_and_time_alike() -> None:
    on = cluster(4, placement="tp-cp-ep-pp-dp")
    oracle = oracle_of(mixtral_8x22b(), on)
    for ask in (oracle.memory, oracle.project):
        assert ask(mixtral_8x22b().baseline).reason_code == "placement_not_folded"


def test_a_lever_that_does_next_to_nothing_says_so() -> None:
    workload = mixtral_8x22b(recompute_granularity="selective")
    result = oracle_of(workload, cluster(4)).project(workload.baseline)
    assert any("frees only its log-sum-exp" in warning for warning in result.warnings)


def signature(workload: Workload, on: Cluster) -> SignatureHashes:
    gemm = gemm_model(on.gpu, "tile")
    return signature_of(workload, on, gemm=gemm).hashes


def test_the_signature_changes_in_exactly_the_part_that_changed() -> None:
    workload, on = mixtral_8x22b(), cluster(4)
    base = signature(workload, on)
    wider = workload.architecture.model_copy(update={"num_layers": 60, "moe_layers": (True,) * 60})
    stack = on.stack.model_copy(update={"rocm": "7.0"})
    changed = {
        "model": [
            signature(workload.model_copy(update={"architecture": wider}), on),
            signature(workload.model_copy(update={"seq_length": 4096}), on),
            signature(
                workload.model_copy(update={"precision": Precision(main_grads_dtype="bf16")}), on
            ),
        ],
        "cluster": [
            signature(workload, cluster(8)),
            signature(workload, on.model_copy(update={"placement": "tp-cp-ep-pp-dp"})),
            signature(workload, on.model_copy(update={"memory_safety_margin": 0.05})),
        ],
        "stack": [
            signature(workload, on.model_copy(update={"stack": stack})),
        ],
    }
    for part, others in changed.items():
        for other in others:
            different = {
                name
                for name in ("model", "cluster", "stack")
                if getattr(other, name) != getattr(base, name)
            }
            assert different == {part}


def test_names_and_paths_and_the_baseline_are_no_part_of_the_signature() -> None:
    workload, on = mixtral_8x22b(), cluster(4)
    renamed = workload.model_copy(
        update={"name": "other", "source": "elsewhere.yaml", "document": {"exp_name": "x"}}
    )
    moved = renamed.model_copy(update={"baseline": mixtral_8x22b(mbs=1).baseline})
    assert signature(moved, on.model_copy(update={"name": "other"})) == signature(workload, on)


def test_stack_entries_say_where_they_come_from() -> None:
    on = cluster(4)
    declared = on.model_copy(update={"stack": on.stack.model_copy(update={"rocm": "7.0"})})
    gemm = gemm_model(on.gpu, "tile")
    whole = signature_of(small_moe(), declared, gemm=gemm, origin={"torch": "detected"})
    assert whole.origin["rocm"] == "declared"
    assert whole.origin["rccl"] == "none"
    assert whole.origin["torch"] == "detected"
