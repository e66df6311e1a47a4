from typing import Any

import pytest
from hypothesis import given, settings

from projection.legality import as_request, normalise, settled, short_request
from schemas.errors import UserError
from schemas.trial import NormalTrial, TrialConfig
from schemas.workload import Workload
from tests.builders import (
    DEEPSEEK_RECOMPUTED,
    deepseek_v3,
    llama_70b,
    mixtral_8x22b,
    small_moe,
    trial,
)
from tests.projection.legality.strategies import requests, workloads


def normal(workload: Workload, **knobs: Any) -> NormalTrial:
    return normalise(TrialConfig(**knobs), workload)


@given(workloads)
def test_the_empty_request_is_the_baseline(workload: Workload) -> None:
    assert normalise(TrialConfig(), workload) == workload.baseline


@given(requests, workloads)
@settings(max_examples=400, deadline=None)
def test_normal_form_is_a_fixed_point(request: TrialConfig, workload: Workload) -> None:
    once = normalise(request, workload)
    assert normalise(as_request(once), workload) == once
    assert normalise(short_request(once, workload), workload) == once


@given(workloads)
def test_a_baseline_is_settled(workload: Workload) -> None:
    assert settled(workload.baseline) == workload.baseline


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"vpp": 1}, {}),
        ({"recompute_granularity": "none"}, {}),
        ({"recompute_granularity": "full", "recompute_num_layers": 0}, {}),
        ({"pp_schedule": "zerobubble"}, {"enable_zero_bubble": True}),
        ({"pp_schedule": "interleaved_1f1b", "vpp": 2}, {"vpp": 2}),
        ({"pp_schedule": "seaailab-ilp"}, {"pp_schedule": "ilp"}),
        ({"pp_schedule": "v-half", "vpp": 2}, {"pp_schedule": "zbv-greedy-half", "vpp": 2}),
        ({"pp_schedule": "Zero_Bubble"}, {"pp_schedule": "zero-bubble"}),
        ({"pp_schedule": "auto"}, {}),
        ({"sync_free_stage": 2}, {"sync_free_stage": 2, "use_turbo_deepep": True}),
        (
            {"recompute_granularity": "full"},
            {"recompute_granularity": "full", "recompute_num_layers": 14},
        ),
        ({"fp8": "delayed"}, {"fp8": "hybrid"}),
        ({"target_ep_size": 8}, {}),
        ({"tp": 2}, {"tp": 2, "etp": 2}),
        ({"pp": 1, "pp_schedule": "zero-bubble"}, {"pp": 1}),
    ],
)
def test_two_spellings_of_one_configuration_are_one_trial(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    workload = mixtral_8x22b()
    assert normal(workload, **one).trial_id == normal(workload, **other).trial_id


def test_delayed_is_its_own_configuration_where_the_file_has_another_recipe() -> None:
    plain = mixtral_8x22b()
    recipe = plain.precision.model_copy(update={"fp8_recipe": "tensorwise"})
    workload = plain.model_copy(update={"precision": recipe})
    assert normal(workload, fp8="delayed").fp8 == "delayed"


def test_zero_bubble_asked_for_or_refused_resolves_the_schedule() -> None:
    assert normal(mixtral_8x22b(), enable_zero_bubble=True).pp_schedule == "zero-bubble"
    split = mixtral_8x22b(pp_schedule="zb-heuristic")
    assert normal(split).pp_schedule == "zb-heuristic"
    assert normal(split, enable_zero_bubble=True).pp_schedule == "zb-heuristic"
    assert normal(split, enable_zero_bubble=False).pp_schedule == "1f1b"


def test_a_schedule_that_cannot_run_the_new_vpp_gives_way_to_the_plain_one() -> None:
    split = mixtral_8x22b(pp_schedule="zero-bubble")
    assert normal(split, vpp=2).pp_schedule == "interleaved"
    v_shaped = mixtral_8x22b(pp_schedule="zbv-formatted", vpp=2)
    assert normal(v_shaped, pp=2).pp_schedule == "zbv-formatted"
    assert normal(v_shaped, vpp=1).pp_schedule == "1f1b"
    assert normal(v_shaped, pp=1).model_dump(include={"vpp", "pp_schedule"}) == {
        "vpp": 1,
        "pp_schedule": "1f1b",
    }


def test_a_named_schedule_is_kept_even_where_it_is_illegal() -> None:
    assert normal(mixtral_8x22b(), pp_schedule="zbv-formatted").pp_schedule == "zbv-formatted"


def test_an_unknown_schedule_is_a_user_error_with_the_nearest_name() -> None:
    with pytest.raises(UserError, match="did you mean 'zero-bubble'"):
        normal(mixtral_8x22b(), pp_schedule="zero-buble")


def test_expert_tp_follows_tp_unless_the_file_sets_it_apart() -> None:
    assert normal(mixtral_8x22b(), tp=4).etp == 4
    assert normal(mixtral_8x22b(tp=2, etp=1), tp=4).etp == 1
    assert normal(mixtral_8x22b(), tp=4, etp=1).etp == 1


def test_asking_for_full_without_a_number_recomputes_every_layer_by_block() -> None:
    found = normal(mixtral_8x22b(), recompute_granularity="full", vpp=2)
    assert (found.recompute_method, found.recompute_num_layers) == ("block", 7)
    uniform = normal(mixtral_8x22b(), recompute_granularity="full", recompute_method="uniform")
    assert (uniform.recompute_method, uniform.recompute_num_layers) == ("uniform", 1)


def test_an_inherited_number_of_layers_is_capped_where_stages_get_smaller() -> None:
    assert normal(llama_70b()).recompute_num_layers == 30
    assert normal(llama_70b(), pp=2).recompute_num_layers == 30
    assert normal(llama_70b(), pp=4).recompute_num_layers == 20


def test_an_explicit_number_of_layers_is_never_capped() -> None:
    found = normal(llama_70b(), pp=4, recompute_num_layers=30)
    assert found.recompute_num_layers == 30


def test_a_files_larger_number_of_layers_is_the_spelling_of_all_of_them() -> None:
    workload = mixtral_8x22b(
        recompute_granularity="full", recompute_method="block", recompute_num_layers=80
    )
    assert normal(workload).recompute_num_layers == 80
    assert normal(workload, recompute_num_layers=14) == normal(workload)
    assert normal(workload, recompute_num_layers=13).recompute_num_layers == 13


def test_listed_layers_are_kept_while_recompute_is_left_alone() -> None:
    workload = deepseek_v3()
    assert normal(workload, pp=8, vpp=1).recompute_layer_ids == DEEPSEEK_RECOMPUTED
    assert normal(workload, recompute_granularity="full").recompute_layer_ids == DEEPSEEK_RECOMPUTED
    touched = normal(workload, recompute_granularity="full", recompute_num_layers=1)
    assert touched.recompute_layer_ids == ()
    assert (touched.recompute_method, touched.recompute_num_layers) == ("block", 1)
    assert normal(workload, recompute_granularity="none").recompute_layer_ids == ()


def test_selective_has_the_default_modules_or_the_files() -> None:
    assert normal(mixtral_8x22b(), recompute_granularity="selective").recompute_modules == (
        "core_attn",
    )
    named = mixtral_8x22b(recompute_granularity="selective", recompute_modules=("mlp", "moe"))
    assert normal(named, mbs=1).recompute_modules == ("mlp", "moe")
    assert normal(named, recompute_granularity="none").recompute_modules == ()


def test_turning_one_sharding_on_turns_the_other_off_unless_told_otherwise() -> None:
    on = normal(mixtral_8x22b(), use_torch_fsdp2=True)
    assert not on.use_distributed_optimizer
    assert not on.overlap_param_gather
    both = normal(mixtral_8x22b(), use_torch_fsdp2=True, use_distributed_optimizer=True)
    assert both.use_distributed_optimizer
    assert not normal(llama_70b(), use_distributed_optimizer=True).use_torch_fsdp2


def test_deepep_told_off_stays_off_under_a_sync_free_stage() -> None:
    found = normal(mixtral_8x22b(), sync_free_stage=3, use_turbo_deepep=False)
    assert not found.use_turbo_deepep


def test_a_changed_pipeline_drops_the_files_split_and_lays_uneven_layers_out_anew() -> None:
    workload = deepseek_v3()
    kept = normal(workload, mbs=1)
    assert kept.layout == workload.baseline.layout
    assert normal(workload, pp=8, vpp=2).layout == (
        "Et*3|t*4|t*4|t*4|t*4|t*4|t*4|t*4|t*4|t*4|t*4|t*4|t*4|t*4|t*3|t*3,L"
    )
    assert normal(workload, pp=1).layout is None
    ends = mixtral_8x22b(first_stage_layers=13, last_stage_layers=13)
    changed = normal(ends, pp=8)
    assert (changed.first_stage_layers, changed.last_stage_layers) == (None, None)
    assert changed.layout is None


def test_a_dense_models_explicit_moe_knobs_are_kept_to_be_refused() -> None:
    found = normal(llama_70b(), ep=4, use_turbo_deepep=True, sync_free_stage=1)
    assert (found.ep, found.use_turbo_deepep, found.sync_free_stage) == (4, True, 1)


@pytest.mark.parametrize("value", [0, -1, -8])
@pytest.mark.parametrize("knob", ["tp", "pp", "ep", "cp", "vpp", "mbs", "gbs"])
def test_impossible_sizes_have_a_normal_form_too(knob: str, value: int) -> None:
    assert getattr(normal(deepseek_v3(), **{knob: value}), knob) == value


def test_a_short_request_is_what_differs() -> None:
    workload = small_moe()
    changed = normal(workload, tp=2, etp=1, mbs=4)
    assert short_request(changed, workload) == TrialConfig(tp=2, etp=1, mbs=4)


def test_settling_a_files_values() -> None:
    raw = trial(
        recompute_granularity="full", recompute_method="block", sync_free_stage=2, pp_schedule="ilp"
    )
    found = settled(raw)
    assert found == trial(sync_free_stage=2, use_turbo_deepep=True)
