"""Rules on single values. The other rules divide by them, so these come first."""

from collections.abc import Callable

from projection.degrees import MAX_GBS
from projection.legality.context import Context
from projection.legality.rules.rule import Rule
from schemas.trial import NormalTrial

SIZES = ("tp", "pp", "ep", "etp", "cp", "vpp", "mbs", "gbs")
MAX_SYNC_FREE_STAGE = 3


def _positive(knob: str) -> Callable[[NormalTrial, Context], str | None]:
    def broken(trial: NormalTrial, _: Context) -> str | None:
        value: int = getattr(trial, knob)
        return None if value >= 1 else f"{knob} = {value}, the smallest possible value is 1"

    return broken


def gbs_too_large(trial: NormalTrial, _: Context) -> str | None:
    """More sequences than an iteration can be timed with."""
    return None if trial.gbs <= MAX_GBS else f"gbs is above {MAX_GBS:,}, the largest"


def negative_recompute_layers(trial: NormalTrial, _: Context) -> str | None:
    """A count of layers cannot be negative."""
    layers = trial.recompute_num_layers
    return None if layers >= 0 else f"recompute_num_layers = {layers} is negative"


def target_ep_not_positive(trial: NormalTrial, _: Context) -> str | None:
    """The EP an all-to-all is priced for is a size."""
    size = trial.target_ep_size
    return None if size is None or size >= 1 else f"target_ep_size = {size}, the smallest is 1"


def unknown_sync_free_stage(trial: NormalTrial, _: Context) -> str | None:
    """Primus has sync-free stages 0 to 3."""
    stage = trial.sync_free_stage
    if 0 <= stage <= MAX_SYNC_FREE_STAGE:
        return None
    nearest = 0 if stage < 0 else MAX_SYNC_FREE_STAGE
    return f"sync_free_stage = {stage} is not one of 0, 1, 2, 3; the nearest is {nearest}"


RULES = (
    *(Rule("not_positive", _positive(knob), (knob,)) for knob in SIZES),
    Rule("gbs_too_large", gbs_too_large, ("gbs",)),
    Rule("negative_recompute_layers", negative_recompute_layers, ("recompute_num_layers",)),
    Rule("target_ep_not_positive", target_ep_not_positive, ("target_ep_size",)),
    Rule("unknown_sync_free_stage", unknown_sync_free_stage, ("sync_free_stage",)),
)
