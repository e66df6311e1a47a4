"""What a person should know of a legal trial."""

from collections.abc import Callable

from projection.legality.context import Context
from projection.legality.rules.levers import stage_overflow
from schemas.trial import NormalTrial


def fp8_mla_recipe(trial: NormalTrial, context: Context) -> str | None:
    """FP8 with multi-latent attention runs another recipe than the default."""
    if trial.fp8 == "none" or context.architecture.attention != "mla":
        return None
    if context.workload.precision.fp8_recipe == "tensorwise":
        return None
    return f"fp8 {trial.fp8} with multi-latent attention runs the tensorwise recipe"


def target_ep_differs(trial: NormalTrial, _: Context) -> str | None:
    """An all-to-all is priced for another group than the one that runs."""
    if trial.target_ep_size is None or trial.target_ep_size == trial.ep:
        return None
    return f"target_ep_size {trial.target_ep_size} prices another all-to-all than ep {trial.ep}'s"


def recompute_means_all(trial: NormalTrial, context: Context) -> str | None:
    """A file's count of recomputed layers may be larger than its stages: it means all of them."""
    overflow = stage_overflow(trial, context)
    return None if overflow is None else f"{overflow}: all of them are recomputed"


ADVICE: tuple[Callable[[NormalTrial, Context], str | None], ...] = (
    fp8_mla_recipe,
    target_ep_differs,
    recompute_means_all,
)
