from typing import Any

from hypothesis import given

from projection.legality import normalise
from projection.legality.derived import derived_settings
from schemas.trial import TrialConfig
from schemas.workload import Workload
from tests.builders import deepseek_v3, llama_70b, mixtral_8x22b
from tests.projection.legality.strategies import workloads


def derived(workload: Workload, **asked: Any) -> dict[str, Any]:
    return derived_settings(normalise(TrialConfig(**asked), workload), workload)


@given(workloads)
def test_the_workloads_own_configuration_needs_nothing(workload: Workload) -> None:
    assert derived(workload) == {}


def test_deepep_brings_its_router_type() -> None:
    found = derived(mixtral_8x22b(), use_turbo_deepep=True)
    assert found == {
        "enable_primus_turbo": True,
        "moe_router_dtype": "fp32",
        "moe_shared_expert_overlap": False,
    }


def test_sync_free_2_brings_turbos_grouped_gemm_which_excludes_the_legacy_one() -> None:
    found = derived(mixtral_8x22b(), sync_free_stage=2)
    assert found["moe_router_dtype"] == "fp32"
    assert (found["use_turbo_grouped_gemm"], found["moe_use_legacy_grouped_gemm"]) == (True, False)


def test_fp8_under_latent_attention_takes_the_tensorwise_recipe() -> None:
    found = derived(deepseek_v3(), fp8="hybrid")
    assert found == {"fp8_recipe": "tensorwise", "use_turbo_fused_act_with_probs": True}
    assert derived(mixtral_8x22b(), fp8="hybrid") == {}


def test_a_split_schedule_runs_in_primus_own_pipeline() -> None:
    assert derived(mixtral_8x22b(), pp_schedule="zbv-greedy-min", vpp=2) == {
        "pp_algorithm": "v-min",
        "enable_zero_bubble": True,
        "patch_primus_pipeline": True,
        "patch_zero_bubble": False,
    }
    assert derived(mixtral_8x22b(), vpp=2)["patch_primus_pipeline"] is False


def test_fsdp2_takes_what_excludes_it_away() -> None:
    found = derived(mixtral_8x22b(), use_torch_fsdp2=True, pp=1, ep=1)
    assert found["gradient_accumulation_fusion"] is False
    assert found["ckpt_format"] == "torch_dist"
    assert derived(llama_70b(), mbs=2) == {}


def test_a_dropped_split_and_dropped_layers_are_removed_from_the_file() -> None:
    found = derived(deepseek_v3(), pp=8, vpp=1, recompute_granularity="none")
    assert found["pipeline_model_parallel_layout"].startswith("Et*7|t*8")
    assert found["recompute_layer_ids"] is None
    assert derived(deepseek_v3(), pp=1)["pipeline_model_parallel_layout"] is None


def test_selective_names_its_modules() -> None:
    found = derived(mixtral_8x22b(), recompute_granularity="selective")
    assert found == {"recompute_modules": ["core_attn"]}
