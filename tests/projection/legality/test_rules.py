"""Every rule with the smallest request that breaks it, and the sentence it is refused with."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings

from projection.legality import check, normalise
from projection.legality.context import Context
from projection.legality.rules import CODES, RULES, VALUE_RULES, Rule
from schemas.cluster import Cluster
from schemas.errors import ClusterError
from schemas.search import SearchSpec
from schemas.trial import NormalTrial, TrialConfig
from schemas.workload import Workload
from tests.builders import (
    a100,
    cluster,
    deepseek_v3,
    llama_70b,
    mixtral_8x22b,
    search,
    small_dense,
    small_moe,
)
from tests.projection.legality.strategies import requests, workloads

FREED = search(gbs=True, overlap_grad_reduce=True, overlap_param_gather=True)


def with_architecture(workload: Workload, **changes: Any) -> Workload:
    architecture = workload.architecture.model_copy(update=changes)
    return workload.model_copy(update={"architecture": architecture})


def with_precision(workload: Workload, **changes: Any) -> Workload:
    return workload.model_copy(update={"precision": workload.precision.model_copy(update=changes)})


@dataclass
class Case:
    """A request that breaks the rule `code`, and the words its reason must have."""

    code: str
    asked: dict[str, Any]
    says: str
    workload: Workload = field(default_factory=mixtral_8x22b)
    cluster: Cluster = field(default_factory=lambda: cluster(8))
    search: SearchSpec = FREED


TP_ONLY = {"ep": 1, "etp": 1, "pp": 1}

CASES = [
    Case("not_positive", {"tp": 0}, "tp = 0"),
    Case("not_positive", {"mbs": -2}, "mbs = -2"),
    Case(
        "negative_recompute_layers",
        {"recompute_granularity": "full", "recompute_num_layers": -1},
        "recompute_num_layers = -1",
    ),
    Case("target_ep_not_positive", {"target_ep_size": 0}, "target_ep_size = 0"),
    Case("unknown_sync_free_stage", {"sync_free_stage": 7}, "the nearest is 3"),
    Case("unknown_schedule", {"pp_schedule": "zerobuble"}, "did you mean 'zero-bubble'"),
    Case(
        "zero_bubble_contradicts_schedule",
        {"pp_schedule": "1f1b", "enable_zero_bubble": True},
        "enable_zero_bubble true, but schedule 1f1b does not split",
    ),
    Case("zero_bubble_needs_one_chunk", {"enable_zero_bubble": True, "vpp": 2}, "with vpp 2"),
    Case(
        "recompute_layers_without_full",
        {"recompute_num_layers": 3},
        "recompute_granularity is none",
    ),
    Case(
        "world_not_tiled",
        {"tp": 4, "pp": 8, "ep": 8},
        "tp·pp·ep = 4·8·8 = 256 GPUs per replica, the cluster has 64",
    ),
    Case(
        "world_not_tiled",
        {"pp": 7},
        "tp·cp·pp = 1·1·7 = 7 GPUs per replica, the cluster has 64, which leaves 1 idle",
    ),
    Case(
        "world_not_tiled",
        {"tp": 8, "pp": 16, "ep": 8, "etp": 1},
        "tp·cp·pp = 8·1·16 = 128 GPUs per replica, the cluster has 64",
    ),
    Case("ep_needs_moe", {"ep": 2}, "ep 2 on a dense model", llama_70b()),
    Case("ep_experts", {"ep": 16}, "ep 16 does not divide the 8 experts"),
    Case(
        "ep_fp16",
        {},
        "ep 8 with fp16",
        with_precision(mixtral_8x22b(), params_dtype="fp16"),
    ),
    Case(
        "cp_sequence",
        {"cp": 2, "tp": 1},
        "2·cp = 4 does not divide the sequence length 8190",
        mixtral_8x22b().model_copy(update={"seq_length": 8190}),
    ),
    Case("cp_exceeds_node", {"cp": 16}, "cp 16 is more than the 8 GPUs", llama_70b()),
    Case("cp_not_folded", {"cp": 4, "ep": 2}, "cp 4 does not fold into ep 2"),
    Case(
        "cp_heads",
        {"tp": 8, "etp": 1, "pp": 1, "cp": 8},
        "cp 8 by all-to-all does not divide 6 heads and 1 KV groups",
        mixtral_8x22b().model_copy(update={"cp_comm_type": "a2a"}),
    ),
    Case(
        "sequence_parallel_length",
        {"tp": 8, "etp": 1, "pp": 1},
        "tp·cp = 8·1 = 8 does not divide the sequence length 8196",
        mixtral_8x22b().model_copy(update={"seq_length": 8196}),
    ),
    Case(
        "tp_heads",
        TP_ONLY | {"tp": 8},
        "tp 8 does not divide the attention heads 12",
        with_architecture(mixtral_8x22b(), num_attention_heads=12, num_query_groups=4),
    ),
    Case(
        "tp_kv_groups",
        TP_ONLY | {"tp": 4},
        "tp 4 neither divides the 6 KV groups",
        with_architecture(mixtral_8x22b(), num_query_groups=6),
    ),
    Case(
        "tp_hidden",
        TP_ONLY | {"tp": 4},
        "tp 4 does not divide the hidden size 6146",
        with_architecture(mixtral_8x22b(), hidden_size=6146),
    ),
    Case(
        "tp_ffn",
        {"tp": 4},
        "tp 4 does not divide the ffn hidden size 28670",
        with_architecture(llama_70b(), ffn_hidden_size=28670),
    ),
    Case(
        "tp_shared_expert",
        TP_ONLY | {"tp": 4},
        "tp 4 does not divide the shared expert width 1022",
        with_architecture(mixtral_8x22b(), shared_expert_hidden_size=1022),
    ),
    Case(
        "tp_vocab",
        TP_ONLY | {"tp": 4},
        "tp 4 does not divide the padded vocabulary 32002",
        mixtral_8x22b().model_copy(update={"padded_vocab_size": 32002}),
    ),
    Case("tp_exceeds_node", {"tp": 16}, "tp 16 is more than the 8 GPUs of a node", llama_70b()),
    Case(
        "moe_tp_needs_sequence_parallel",
        TP_ONLY | {"tp": 2},
        "an MoE model with tp 2 needs sequence_parallel",
        mixtral_8x22b().model_copy(update={"sequence_parallel": False}),
    ),
    Case("etp_not_one_or_tp", {"tp": 8, "etp": 2}, "etp 2 is neither 1 nor tp 8"),
    Case("etp_not_one_or_tp", {"tp": 4, "etp": 2}, "etp 2 on a dense model", llama_70b()),
    Case(
        "etp_moe_ffn",
        {"tp": 4, "etp": 4, "ep": 1, "pp": 1},
        "etp 4 does not divide the expert ffn hidden size 16386",
        with_architecture(mixtral_8x22b(), moe_ffn_hidden_size=16386),
    ),
    Case("more_stages_than_layers", {"pp": 4, "vpp": 2}, "4·2 = 8 stages", small_moe()),
    Case("pp_splits_layers_unevenly", {"pp": 16, "ep": 1}, "56 is not a multiple of pp 16"),
    Case(
        "pp_splits_layers_unevenly",
        {},
        "first/last stage layers 13/even leave 43 of 56 layers for 3 ranks",
        mixtral_8x22b(first_stage_layers=13),
    ),
    Case("vpp_splits_layers_unevenly", {"vpp": 3}, "vpp 3 does not divide the 14 layers"),
    Case(
        "layout_mismatch",
        {},
        "the pipeline layout has 4 decoder layers, the model has 56",
        mixtral_8x22b(layout="Et|t|t|t,L"),
    ),
    Case("vpp_needs_pp", {"pp": 1, "vpp": 2}, "vpp 2 needs pp > 1"),
    Case("vpp_too_deep", {"vpp": 14}, "vpp 14 is more than 8 chunks"),
    Case(
        "schedule_vpp",
        {"pp_schedule": "zbv-formatted"},
        "schedule zbv-formatted does not run vpp 1; for that: 1f1b, zero-bubble",
    ),
    Case(
        "interleaved_microbatches",
        {"vpp": 2, "mbs": 8},
        "interleaved with 1 microbatches, fewer than pp 4",
    ),
    Case(
        "interleaved_microbatches",
        {"vpp": 2, "pp": 8, "mbs": 1, "gbs": 96},
        "interleaved with 12 microbatches, not a multiple of pp 8",
        mixtral_8x22b(gbs=96),
    ),
    Case("mbs_not_power_of_two", {"mbs": 3}, "the nearest is 2"),
    Case("mbs_not_power_of_two", {"mbs": 32}, "the nearest is 16"),
    Case("gbs_not_divisible", {"mbs": 16}, "gbs 128 is not a multiple of mbs·dp = 16·16 = 256"),
    Case("gbs_not_searched", {"gbs": 192}, "gbs 192 is not one of 128, 256, 512, 1024"),
    Case(
        "recompute_split_backward",
        {"pp_schedule": "zero-bubble", "recompute_granularity": "selective"},
        "recompute selective with schedule zero-bubble",
    ),
    Case(
        "recompute_exceeds_stage",
        {"recompute_granularity": "full", "recompute_num_layers": 15},
        "recompute_num_layers 15 is more than the 14 layers of a virtual stage",
    ),
    Case(
        "fsdp2_with_distributed_optimizer",
        {"use_torch_fsdp2": True, "use_distributed_optimizer": True},
        "exclude each other",
        llama_70b(),
    ),
    Case("fsdp2_pp", {"pp": 2}, "use_torch_fsdp2 needs pp 1, pp is 2", llama_70b()),
    Case("fsdp2_ep", {"use_torch_fsdp2": True, "pp": 1}, "needs ep 1, ep is 8"),
    Case(
        "fsdp2_tied",
        {},
        "needs untied embeddings",
        with_architecture(llama_70b(), tied_embeddings=True),
    ),
    Case("fsdp2_fp16", {}, "fp16 parameters", with_precision(llama_70b(), params_dtype="fp16")),
    Case(
        "param_gather_optimizer",
        {"use_distributed_optimizer": False, "overlap_param_gather": True},
        "overlap_param_gather needs use_distributed_optimizer",
    ),
    Case(
        "param_gather_grad_reduce",
        {"overlap_grad_reduce": False, "overlap_param_gather": True},
        "overlap_param_gather needs overlap_grad_reduce",
    ),
    Case("deepep_needs_moe", {"use_turbo_deepep": True}, "on a dense model", llama_70b()),
    Case("deepep_needs_group", {"use_turbo_deepep": True, "ep": 1}, "needs etp·ep > 1"),
    Case("sync_free_needs_moe", {"sync_free_stage": 1}, "on a dense model", llama_70b()),
    Case(
        "sync_free_contradicts_deepep",
        {"sync_free_stage": 2, "use_turbo_deepep": False},
        "sync_free_stage 2 runs on DeepEP",
    ),
    Case("target_ep_needs_moe", {"target_ep_size": 4}, "on a dense model", llama_70b()),
    Case(
        "fp8_unsupported",
        {"fp8": "hybrid"},
        "fp8 hybrid on a100-80g",
        cluster=cluster(8, gpu=a100()),
    ),
    Case(
        "fp8_delayed_mla",
        {"fp8": "delayed"},
        "runs the tensorwise recipe",
        deepseek_v3(),
        cluster(64),
    ),
    Case(
        "axis_pinned",
        {"gbs": 256},
        "gbs = 256, it is fixed to 128 by optimization.axes.gbs: false",
        search=search(),
    ),
    Case(
        "axis_pinned",
        {"pp": 8},
        "pp = 8, it is fixed to 2 by pinned.pp",
        search=search({"pp": 2}),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code}-{case.asked}")
def test_smallest_counter_example(case: Case) -> None:
    verdict = check(TrialConfig(**case.asked), case.workload, case.cluster, case.search)
    reasons = {v.reason for v in verdict.violations if v.code == case.code}
    assert not verdict.legal
    assert any(case.says in reason for reason in reasons), verdict.violations
    assert all("\n" not in reason for reason in reasons)


def test_every_rule_has_a_counter_example() -> None:
    assert {case.code for case in CASES} == set(CODES)


@pytest.mark.parametrize(
    ("workload", "nodes"),
    [
        (mixtral_8x22b(), 4),
        (mixtral_8x22b(), 8),
        (llama_70b(), 4),
        (llama_70b(mbs=3, gbs=96), 4),
        (deepseek_v3(), 64),
    ],
)
def test_shipped_recipes_are_legal_as_they_are(workload: Workload, nodes: int) -> None:
    verdict = check(TrialConfig(), workload, cluster(nodes), search())
    assert verdict.violations == ()


def test_parallel_folding_lets_tp_and_ep_share_gpus() -> None:
    """tp 8 and ep 8 on 8 GPUs: with etp 1 the experts use the GPUs that attention splits over."""
    workload, one_node = mixtral_8x22b(tp=8, etp=1, pp=1, ep=8), cluster(1)
    assert check(TrialConfig(), workload, one_node, search()).legal
    refused = check(TrialConfig(etp=8), workload, one_node, search())
    assert {v.code for v in refused.violations} == {"world_not_tiled"}


def test_kv_groups_may_be_replicated() -> None:
    workload = with_architecture(llama_70b(), num_query_groups=2)
    assert check(TrialConfig(tp=8), workload, cluster(4), search()).legal


def test_a_file_is_not_held_to_the_limits_of_a_search() -> None:
    workload = mixtral_8x22b(mbs=3, gbs=48 * 16, vpp=14, pp_schedule="interleaved")
    measured = workload.model_copy(update={"baseline": mixtral_8x22b().baseline})
    as_file = check(workload.baseline, measured, cluster(8), search(), proposal=False)
    assert as_file.legal
    as_proposal = check(workload.baseline, measured, cluster(8), search())
    assert {v.code for v in as_proposal.violations} == {
        "mbs_not_power_of_two",
        "vpp_too_deep",
        "axis_pinned",
    }


def test_recompute_with_a_split_backward_is_a_warning_for_a_file() -> None:
    asked = TrialConfig(pp_schedule="zero-bubble", recompute_granularity="full")
    verdict = check(asked, mixtral_8x22b(), cluster(8), search(), proposal=False)
    assert verdict.legal
    assert any("schedule zero-bubble" in line for line in verdict.warnings)


def test_a_files_excess_of_recomputed_layers_means_all_with_a_warning() -> None:
    knobs = {"recompute_granularity": "full", "recompute_num_layers": 80}
    asked = TrialConfig(**cast(dict[str, Any], knobs))
    verdict = check(asked, mixtral_8x22b(), cluster(8), search(), proposal=False)
    assert verdict.legal
    assert any("all of them are recomputed" in line for line in verdict.warnings)
    own = mixtral_8x22b(recompute_method="block", **knobs)
    seed = check(TrialConfig(mbs=1), own, cluster(8), search())
    assert seed.legal
    assert any("all of them are recomputed" in line for line in seed.warnings)


def test_fp8_with_latent_attention_is_announced() -> None:
    verdict = check(TrialConfig(fp8="hybrid"), deepseek_v3(), cluster(64), search())
    assert verdict.legal
    assert any("tensorwise" in line for line in verdict.warnings)


def test_all_violations_are_reported_the_leading_one_first() -> None:
    verdict = check(
        TrialConfig(tp=3, mbs=3, pp_schedule="zbv"), mixtral_8x22b(), cluster(8), search()
    )
    codes = [violation.code for violation in verdict.violations]
    assert codes[0] == "unknown_schedule"
    assert {"world_not_tiled", "tp_kv_groups", "mbs_not_power_of_two"} <= set(codes)


def test_a_toggle_lets_a_dependent_knob_follow() -> None:
    """vpp is fixed to the workload's 2, which without a pipeline is 1."""
    workload = mixtral_8x22b(vpp=2, pp_schedule="interleaved")
    fixed = search(vpp=False, pp_schedule=False)
    assert check(TrialConfig(pp=1), workload, cluster(8), fixed).legal
    assert not check(TrialConfig(vpp=1), workload, cluster(8), fixed).legal


def test_a_pinned_knob_that_does_not_exist_is_named_with_the_nearest() -> None:
    with pytest.raises(ClusterError, match="did you mean 'pp_schedule'"):
        check(TrialConfig(), mixtral_8x22b(), cluster(8), search({"pp_shedule": "1f1b"}))


def test_a_pinned_value_of_the_wrong_kind_is_refused() -> None:
    with pytest.raises(ClusterError, match="pinned"):
        check(TrialConfig(), mixtral_8x22b(), cluster(8), search({"fp8": "fp4"}))
    with pytest.raises(ClusterError, match="means nothing here"):
        check(TrialConfig(), mixtral_8x22b(), cluster(8), search({"recompute_num_layers": 4}))


@given(requests, workloads)
@settings(max_examples=300, deadline=None)
def test_a_request_and_its_normal_form_get_the_same_rules(
    request: TrialConfig, workload: Workload
) -> None:
    """What the normal form cannot hold is the only difference."""
    there = cluster(8)
    asked = check(request, workload, there, search())
    form = check(normalise(request, workload), workload, there, search())
    extra = {v.code for v in asked.violations} - {v.code for v in form.violations}
    assert extra <= {
        "zero_bubble_contradicts_schedule",
        "zero_bubble_needs_one_chunk",
        "recompute_layers_without_full",
    }
    assert {v.code for v in form.violations} <= {v.code for v in asked.violations}


class Recorder(SimpleNamespace):
    """A trial that remembers which of its knobs were looked at."""

    def __getattribute__(self, name: str) -> Any:
        if not name.startswith("_"):
            object.__getattribute__(self, "__dict__").setdefault("_read", set()).add(name)
        return object.__getattribute__(self, name)


FOLLOWS = {
    "layout": {"pp", "vpp"},
    "first_stage_layers": {"pp", "vpp"},
    "last_stage_layers": {"pp", "vpp"},
    "recompute_layer_ids": {"recompute_granularity"},
    "recompute_modules": {"recompute_granularity"},
}
"""Attributes that are chosen together with knobs a rule may declare instead."""


@given(requests, workloads)
@settings(max_examples=150, deadline=None)
def test_rules_read_only_the_knobs_they_declare(request: TrialConfig, workload: Workload) -> None:
    """The legal space applies a rule as soon as the declared knobs are chosen."""
    context = Context.of(workload, cluster(8), FREED)
    fixed = Context.of(workload, cluster(8), search(vpp=False, pp_schedule=False, recompute=False))
    trial: NormalTrial = normalise(request, workload)
    for rule in (*VALUE_RULES, *RULES):
        for known in (context, fixed):
            read = _knobs_read(rule, trial, known)
            undeclared = {
                name
                for name in read - set(rule.reads)
                if not FOLLOWS.get(name, {name}) <= set(rule.reads)
            }
            assert not undeclared, (rule.code, undeclared)


def _knobs_read(rule: Rule, trial: NormalTrial, context: Context) -> set[str]:
    recorder = Recorder(**{name: getattr(trial, name) for name in NormalTrial.model_fields})
    rule.broken(cast(NormalTrial, recorder), context)
    return set(vars(recorder).get("_read", set()))


def test_a_dense_models_sizes_are_legal_on_a_small_machine() -> None:
    assert check(TrialConfig(tp=2, pp=2), small_dense(), cluster(1), search()).legal
