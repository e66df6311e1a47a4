"""A resolved baseline is already in normal form, so trial 0 is the workload itself."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from projection.legality import normalise
from schemas.trial import TrialConfig

ALWAYS: dict[str, st.SearchStrategy[Any]] = {
    "pipeline_model_parallel_size": st.sampled_from([1, 2, 4]),
    "recompute_method": st.sampled_from(["block", "uniform"]),
    "recompute_num_layers": st.integers(0, 40),
}
SETTINGS: dict[str, st.SearchStrategy[Any]] = {
    "tensor_model_parallel_size": st.sampled_from([1, 2, 8]),
    "num_virtual_stages_per_pipeline_rank": st.sampled_from([None, 1, 2]),
    "expert_model_parallel_size": st.sampled_from([1, 8]),
    "expert_tensor_parallel_size": st.sampled_from([None, 1]),
    "micro_batch_size": st.integers(1, 4),
    "recompute_granularity": st.sampled_from([None, "selective", "full"]),
    "enable_primus_turbo": st.booleans(),
    "use_turbo_deepep": st.booleans(),
    "turbo_sync_free_moe_stage": st.integers(0, 3),
    "fp8": st.sampled_from([None, "hybrid", "e4m3"]),
    "overlap_grad_reduce": st.booleans(),
    "use_torch_fsdp2": st.booleans(),
    "patch_zero_bubble": st.booleans(),
    "patch_primus_pipeline": st.booleans(),
    "pp_algorithm": st.sampled_from(["1f1b", "zbv-formatted", "v-half"]),
}


@pytest.mark.parametrize("model", ["llama3.1_8B", "mixtral_8x7B_v0.1"])
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40
)
@given(overrides=st.fixed_dictionaries(ALWAYS, optional=SETTINGS))
def test_a_trial_that_asks_for_nothing_is_the_baseline(resolve, model: str, overrides) -> None:
    workload = resolve(overrides, model=model)
    assert normalise(TrialConfig(), workload) == workload.baseline
