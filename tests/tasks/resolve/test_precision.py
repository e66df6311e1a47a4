import pytest

from schemas.errors import UnsupportedModel, WorkloadError


@pytest.mark.parametrize(
    ("overrides", "recipe"),
    [
        ({"fp4": "e2m1", "fp4_recipe": "mxfp4"}, "mxfp4"),
        ({"fp4": "e2m1"}, "nvfp4"),
        ({"fp8": "e4m3", "fp8_recipe": "mxfp8"}, "mxfp8"),
        ({"use_turbo_mega_moe": True, "turbo_mega_moe_precision": "mxfp8"}, "mxfp8"),
    ],
)
def test_recipes_without_a_model_are_refused_by_name(resolve, overrides, recipe: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        resolve(overrides)
    assert f"the precision recipe {recipe} is not modelled" in str(caught.value)
    assert not isinstance(caught.value, UnsupportedModel)


def test_a_recipe_that_is_not_used_is_no_refusal(resolve) -> None:
    workload = resolve({"fp4_recipe": "mxfp4", "fp8_recipe": "mxfp8"})
    assert workload.baseline.fp8 == "none"


def test_state_dtypes_count_only_with_the_optimizer_that_reads_them(resolve) -> None:
    dtypes = {"main_grads_dtype": "bf16", "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "fp8"}
    off = resolve(dtypes)
    assert (off.precision.main_grads_dtype, off.precision.exp_avg_sq_dtype) == ("fp32", "fp32")
    assert len(off.warnings) == 3
    assert "no effect without use_precision_aware_optimizer" in off.warnings[0]
    on = resolve(dtypes | {"use_precision_aware_optimizer": True})
    assert on.precision.main_grads_dtype == "bf16"
    assert (on.precision.exp_avg_dtype, on.precision.exp_avg_sq_dtype) == ("bf16", "fp8")
    assert on.warnings == ()


@pytest.mark.parametrize(
    ("overrides", "dtype"),
    [({}, "bf16"), ({"fp16": True}, "fp16"), ({"bf16": False}, "fp32")],
)
def test_weights_follow_the_switches(resolve, overrides, dtype: str) -> None:
    assert resolve(overrides).precision.params_dtype == dtype


def test_the_rest_is_taken_as_it_stands(resolve) -> None:
    precision = resolve(
        {
            "fp8": "hybrid",
            "fp8_recipe": "tensorwise",
            "no_fp8_weight_transpose_cache": True,
            "fp8_param_gather": True,
            "grad_reduce_in_bf16": True,
            "optimizer": "dist_muon",
        }
    ).precision
    assert precision.fp8_recipe == "tensorwise"
    assert not precision.fp8_weight_transpose_cache
    assert precision.fp8_param_gather
    assert precision.grad_reduce_in_bf16
    assert precision.optimizer == "muon"
