from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings

from projection.legality import check, normalise
from projection.legality.context import Context
from projection.legality.rules import CODES, RULES, VALUE_RULES, Rule
from schemas.errors import ClusterError
from schemas.trial import NormalTrial, TrialConfig
from schemas.workload import Workload
from tests.builders import (
    cluster,
    deepseek_v3,
    llama_70b,
    mixtral_8x22b,
    search,
    small_dense,
)
from tests.projection.legality.counter_examples import CASES, FREED, Case, with_architecture
from tests.projection.legality.strategies import requests, workloads


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


def test_what_no_setting_of_a_run_says_cannot_be_pinned() -> None:
    with pytest.raises(ClusterError, match=r"^pinned\.target_ep_size: cannot be pinned") as refused:
        check(TrialConfig(), mixtral_8x22b(), cluster(8), search({"target_ep_size": 16}))
    assert "\n" not in str(refused.value)


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
