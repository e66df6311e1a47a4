from typing import Any

import pytest
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


def test_fsdp2_takes_what_excludes_it_away() -> None:
    found = derived(mixtral_8x22b(), use_torch_fsdp2=True, pp=1, ep=1)
    assert found["gradient_accumulation_fusion"] is False
    assert found["ckpt_format"] == "torch_dist"
    assert derived(llama_70b(), mbs=2) == {}


@pytest.mark.parametrize(
    ("workload", "asked"),
    [
        (mixtral_8x22b(), {"pp_schedule": "zbv-greedy-min", "vpp": 2}),
        (mixtral_8x22b(), {"vpp": 2}),
        (mixtral_8x22b(), {"recompute_granularity": "selective"}),
        (deepseek_v3(), {"pp": 8, "vpp": 1, "recompute_granularity": "none"}),
        (deepseek_v3(), {"pp": 1}),
    ],
)
def test_schedule_split_and_recomputation_are_the_exports_to_spell(
    workload: Workload, asked: dict[str, Any]
) -> None:
    assert derived(workload, **asked) == {}
