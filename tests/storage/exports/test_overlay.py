from typing import Any

import pytest
import yaml

from schemas.trial import NormalTrial
from schemas.workload import Workload
from storage.exports.overlay import overlay, overlay_yaml
from tests.storage.builders import normal_trial
from tests.storage.workloads import workload

WORKLOAD = workload()


def overrides(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["modules"]["pre_trainer"]["overrides"]
    return found


def test_the_baseline_is_the_file_as_it_stands() -> None:
    assert overlay(WORKLOAD, WORKLOAD.baseline) == WORKLOAD.document
    assert overlay(WORKLOAD, WORKLOAD.baseline, {"fp8_recipe": "tensorwise"}) == WORKLOAD.document


def test_keys_refold_does_not_use_are_kept() -> None:
    made = overlay(WORKLOAD, normal_trial(tp=2))
    assert made["my_own_key"] == {"kept": True}
    assert made["modules"]["other_module"] == WORKLOAD.document["modules"]["other_module"]
    assert overrides(made)["train_iters"] == 50
    assert overrides(made)["wandb_project"] == "mine"


def test_the_workload_is_not_changed() -> None:
    before = WORKLOAD.model_dump_json()
    overlay(WORKLOAD, normal_trial(tp=2), {"fp8_recipe": "tensorwise"})
    assert WORKLOAD.model_dump_json() == before


KNOBS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "tp": ({"tp": 2}, {"tensor_model_parallel_size": 2, "expert_tensor_parallel_size": 1}),
    "pp": ({"pp": 8}, {"pipeline_model_parallel_size": 8}),
    "ep": ({"ep": 4}, {"expert_model_parallel_size": 4}),
    "etp": ({"etp": 2}, {"expert_tensor_parallel_size": 2}),
    "cp": ({"cp": 2}, {"context_parallel_size": 2}),
    "vpp": (
        {"vpp": 2, "pp_schedule": "interleaved"},
        {
            "virtual_pipeline_model_parallel_size": 2,
            "num_virtual_stages_per_pipeline_rank": 2,
            "num_layers_per_virtual_pipeline_stage": None,
            "pp_algorithm": "1f1b-interleaved",
            "patch_primus_pipeline": False,
        },
    ),
    "mbs": ({"mbs": 4}, {"micro_batch_size": 4}),
    "gbs": ({"gbs": 256}, {"global_batch_size": 256}),
    "layout": (
        {"layout": "Et*14|t*14|t*14|t*14,L"},
        {
            "pipeline_model_parallel_layout": "Et*14|t*14|t*14|t*14,L",
            "virtual_pipeline_model_parallel_size": None,
            "num_virtual_stages_per_pipeline_rank": None,
        },
    ),
    "first_stage_layers": (
        {"first_stage_layers": 11, "last_stage_layers": 13},
        {"decoder_first_pipeline_num_layers": 11, "decoder_last_pipeline_num_layers": 13},
    ),
    "pp_schedule": (
        {"pp_schedule": "zero-bubble"},
        {
            "pp_algorithm": "zero-bubble",
            "patch_primus_pipeline": True,
            "patch_zero_bubble": False,
            "enable_zero_bubble": True,
        },
    ),
    "recompute_granularity": (
        {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 7},
        {
            "recompute_granularity": "full",
            "recompute_method": "block",
            "recompute_num_layers": 7,
            "recompute_layer_ids": None,
            "recompute_activations": False,
            "moe_layer_recompute": False,
        },
    ),
    "recompute_layer_ids": (
        {"recompute_granularity": "full", "recompute_layer_ids": (0, 3, 7)},
        {
            "recompute_granularity": "full",
            "recompute_method": None,
            "recompute_num_layers": None,
            "recompute_layer_ids": [0, 3, 7],
        },
    ),
    "recompute_modules": (
        {"recompute_granularity": "selective", "recompute_modules": ("core_attn", "moe")},
        {
            "recompute_granularity": "selective",
            "recompute_method": None,
            "recompute_modules": ["core_attn", "moe"],
        },
    ),
    "overlap_grad_reduce": (
        {"overlap_grad_reduce": False, "overlap_param_gather": False},
        {"overlap_grad_reduce": False, "overlap_param_gather": False},
    ),
    "cross_entropy_loss_fusion": (
        {"cross_entropy_loss_fusion": False},
        {"cross_entropy_loss_fusion": False},
    ),
    "use_torch_fsdp2": (
        {"use_torch_fsdp2": True, "use_distributed_optimizer": False},
        {"use_torch_fsdp2": True, "use_distributed_optimizer": False},
    ),
    "use_turbo_deepep": (
        {"use_turbo_deepep": True},
        {"use_turbo_deepep": True, "turbo_sync_free_moe_stage": 0, "enable_primus_turbo": True},
    ),
    "sync_free_stage": (
        {"use_turbo_deepep": True, "sync_free_stage": 3},
        {"turbo_sync_free_moe_stage": 3, "use_turbo_deepep": True},
    ),
    "fp8": ({"fp8": "e4m3"}, {"fp8": "e4m3"}),
}


@pytest.mark.parametrize("knob", KNOBS)
def test_every_knob_is_written_in_the_frameworks_words(knob: str) -> None:
    changes, expected = KNOBS[knob]
    written = overrides(overlay(WORKLOAD, normal_trial(**changes)))
    assert {key: written.get(key, "absent") for key in expected} == expected


def test_the_table_above_knows_every_knob() -> None:
    changed = {name for changes, _ in KNOBS.values() for name in changes}
    # target_ep_size prices the all-to-all for another EP; no setting of a run says that.
    assert changed == set(NormalTrial.model_fields) - {"target_ep_size"}


@pytest.mark.parametrize(
    ("schedule", "algorithm"),
    [
        ("1f1b", "1f1b"),
        ("interleaved", "1f1b-interleaved"),
        ("zero-bubble", "zero-bubble"),
        ("zb-heuristic", "zero-bubble-heuristic"),
        ("zbv-formatted", "zbv-formatted"),
        ("zbv-greedy-half", "v-half"),
        ("zbv-greedy-min", "v-min"),
        ("ilp", "seaailab-ilp"),
    ],
)
def test_schedules_have_primus_names_and_patches(schedule: str, algorithm: str) -> None:
    written = overrides(overlay(WORKLOAD, normal_trial(tp=2, pp_schedule=schedule)))
    assert written["pp_algorithm"] == algorithm
    assert written["patch_primus_pipeline"] == (schedule not in ("1f1b", "interleaved"))
    assert written["patch_zero_bubble"] is False


STALE = {
    "num_layers_per_virtual_pipeline_stage": 7,
    "virtual_pipeline_model_parallel_size": 2,
    "pipeline_model_parallel_layout": "Et*7|t*7|t*7|t*7|t*7|t*7|t*7|t*7,L",
    "decoder_first_pipeline_num_layers": 10,
    "decoder_pipeline_manual_split_list": [14, 14, 14, 14],
    "recompute_layer_ids": "0,3,4",
    "moe_layer_recompute": True,
    "patch_zero_bubble": True,
}


def test_what_the_file_said_of_another_pipeline_is_gone() -> None:
    stale = workload(baseline=normal_trial(vpp=2, pp_schedule="interleaved"), **STALE)
    written = overrides(overlay(stale, normal_trial(pp=8)))
    assert {key: written[key] for key in STALE} == {
        **dict.fromkeys(STALE),
        "moe_layer_recompute": False,
        "patch_zero_bubble": False,
    }


def test_full_recomputation_of_no_layer_does_not_survive_a_split_schedule() -> None:
    stale = workload(recompute_granularity="full", recompute_method="block", recompute_num_layers=0)
    written = overrides(overlay(stale, normal_trial(pp_schedule="zero-bubble")))
    assert written["recompute_granularity"] is None
    assert written["recompute_num_layers"] is None


def test_untouched_groups_keep_the_files_own_words() -> None:
    stated = workload(fp8=False, use_turbo_deepep=False)
    written = overrides(overlay(stated, normal_trial(tp=2)))
    assert written["fp8"] is False
    assert "use_torch_fsdp2" not in written


def test_derived_settings_go_with_the_trial() -> None:
    written = overrides(overlay(WORKLOAD, normal_trial(fp8="hybrid"), {"fp8_recipe": "tensorwise"}))
    assert (written["fp8"], written["fp8_recipe"]) == ("hybrid", "tensorwise")


def test_a_dense_model_gets_no_expert_settings() -> None:
    dense = workload(moe=False, baseline=normal_trial(ep=1))
    written = overrides(overlay(dense, normal_trial(ep=1, tp=2, etp=2)))
    assert not [key for key in written if "moe" in key or "expert_tensor" in key]


def shuffled(value: Any) -> Any:
    """The same JSON with every mapping's keys in reverse order."""
    if isinstance(value, dict):
        return {key: shuffled(value[key]) for key in reversed(list(value))}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


def test_the_bytes_do_not_depend_on_the_order_of_keys() -> None:
    other = WORKLOAD.model_copy(update={"document": shuffled(WORKLOAD.document)})
    again = Workload.model_validate_json(WORKLOAD.model_dump_json())
    for trial in (WORKLOAD.baseline, normal_trial(tp=2)):
        text = overlay_yaml(WORKLOAD, trial, header="as of event 3\nwhy")
        assert text == overlay_yaml(other, trial, header="as of event 3\nwhy")
        assert text == overlay_yaml(again, trial, header="as of event 3\nwhy")
        assert text.startswith("# as of event 3\n# why\nwork_group: amd\nexp_name: mixtral\n")
        assert yaml.safe_load(text) == overlay(WORKLOAD, trial)
        assert list(yaml.safe_load(text)["modules"]["pre_trainer"])[-1] == "overrides"


def test_a_workload_without_overrides_gets_them() -> None:
    bare = WORKLOAD.model_copy(
        update={"document": {"modules": {"pre_trainer": {"model": "m.yaml", "overrides": None}}}}
    )
    assert overrides(overlay(bare, normal_trial(tp=2)))["tensor_model_parallel_size"] == 2
