"""The training precision that the settings ask for; recipes nobody modelled are refused by name."""

from typing import Any, Final

from schemas.errors import WorkloadError
from schemas.trial import Fp8
from schemas.workload import Precision
from tasks.resolve.settings import Settings

_OPTIMIZERS: Final = ("adam", "sgd", "muon", "dist_muon")
_FP8: Final[tuple[Fp8, ...]] = ("none", "hybrid", "e4m3", "delayed")
_FP8_RECIPES: Final = ("delayed", "tensorwise", "blockwise", "mxfp8")
_UNMODELLED: Final = frozenset({"mxfp8", "mxfp4", "nvfp4", "mxfp6"})
_STATE_DTYPES: Final = ("fp32", "bf16", "fp16", "fp8")


def fp8_of(settings: Settings) -> Fp8:
    """The FP8 format of linear layers, "none" when off.

    Raises WorkloadError naming the recipe for the ones the oracle has no model of.
    """
    _refuse_recipes(settings)
    chosen = settings.word("fp8", _FP8)
    for known in _FP8:
        if chosen == known:
            return known
    return "none"


def _refuse_recipes(settings: Settings) -> None:
    fp4 = settings.raw("fp4")
    if fp4 not in (None, False):
        recipe = settings.text("fp4_recipe") or "nvfp4"
        raise _unmodelled(settings, "fp4", recipe)
    if settings.raw("fp8") not in (None, False):
        recipe = settings.word("fp8_recipe", _FP8_RECIPES) or "delayed"
        if recipe in _UNMODELLED:
            raise _unmodelled(settings, "fp8_recipe", recipe)
    experts = str(settings.raw("turbo_mega_moe_precision") or "bf16").lower()
    if settings.flag("use_turbo_mega_moe") and experts in _UNMODELLED:
        raise _unmodelled(settings, "turbo_mega_moe_precision", experts)


def _unmodelled(settings: Settings, key: str, recipe: str) -> WorkloadError:
    return WorkloadError(
        f"{settings.where(key)}: the precision recipe {recipe} is not modelled",
        hint="project the same workload in BF16 or with fp8: hybrid",
    )


def precision_of(settings: Settings) -> Precision:
    """Dtypes of weights, gradients and optimizer states, as the framework would keep them.

    Gradient and state dtypes count only with `use_precision_aware_optimizer`, as in Megatron.
    """
    half = settings.flag("fp16")
    params = "fp16" if half else ("bf16" if settings.flag("bf16") else "fp32")
    optimizer = settings.word("optimizer", _OPTIMIZERS) or "adam"
    fields: dict[str, Any] = {
        "params_dtype": params,
        "optimizer": "muon" if optimizer == "dist_muon" else optimizer,
        "fp8_recipe": settings.word("fp8_recipe", _FP8_RECIPES) or "delayed",
        "fp8_weight_transpose_cache": not settings.flag("no_fp8_weight_transpose_cache"),
        "fp8_param_gather": settings.flag("fp8_param_gather"),
        "grad_reduce_in_bf16": settings.flag("grad_reduce_in_bf16"),
    }
    states = {  # checked whether or not they count
        "main_grads_dtype": settings.word("main_grads_dtype", ("fp32", "bf16")) or "fp32",
        "main_params_dtype": settings.word("main_params_dtype", ("fp32", "fp16")) or "fp32",
        "exp_avg_dtype": settings.word("exp_avg_dtype", _STATE_DTYPES) or "fp32",
        "exp_avg_sq_dtype": settings.word("exp_avg_sq_dtype", _STATE_DTYPES) or "fp32",
    }
    if settings.flag("use_precision_aware_optimizer"):
        fields |= states
    return Precision.model_validate(fields)
