"""The knobs of a trial in the order a search chooses them, with the values each can take.

A factor sets the knobs that only mean something together. Its values depend on knobs chosen before
it, and are in normal form; whether they are legal is for the rules. Together, the factors' values
contain every normal form that a legal proposal can have.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt
from typing import Any

from projection.legality.context import Context
from projection.legality.normal_form import (
    SELECTIVE_MODULES,
    RecomputeSetting,
    delayed_differs,
    inherited_etp,
    inherited_recompute,
    split_of,
    stage_capacity,
)
from projection.legality.rules.batch import MICRO_BATCHES
from projection.legality.rules.pipeline import MAX_VPP
from projection.legality.rules.values import MAX_SYNC_FREE_STAGE
from projection.legality.schedule_names import schedules_for
from schemas.trial import NormalTrial

Values = tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class Factor:
    """Knobs that are chosen together: `values` are tuples in the order of `knobs`."""

    knobs: tuple[str, ...]
    values: Callable[[NormalTrial, Context], Values]
    reads: tuple[str, ...] = ()
    """Knobs of earlier factors that `values` looks at."""


RECOMPUTE_KNOBS = (
    "recompute_granularity",
    "recompute_method",
    "recompute_num_layers",
    "recompute_layer_ids",
    "recompute_modules",
)


def _divisors_of_world(knob: str) -> Callable[[NormalTrial, Context], Values]:
    def values(_: NormalTrial, context: Context) -> Values:
        return _single({*_divisors(context.world), *context.given(knob)})

    return values


@lru_cache(maxsize=1024)
def _divisors(number: int) -> frozenset[int]:
    small = [n for n in range(1, isqrt(number) + 1) if number % n == 0]
    return frozenset({*small, *(number // n for n in small)})


def _ep(trial: NormalTrial, context: Context) -> Values:
    return _divisors_of_world("ep")(trial, context) if context.architecture.is_moe else ((1,),)


def _etp(trial: NormalTrial, context: Context) -> Values:
    if not context.architecture.is_moe:
        return ((inherited_etp(trial.tp, context.baseline),),)
    return _single({1, trial.tp, *context.given("etp")})


def _vpp(trial: NormalTrial, context: Context) -> Values:
    depths = sorted({*range(1, MAX_VPP + 1), *context.given("vpp")})
    return tuple((vpp, *_split(trial.pp, vpp, context)) for vpp in depths)


def _split(pp: int, vpp: int, context: Context) -> tuple[Any, ...]:
    split = split_of(pp, vpp, context.workload)
    return split.layout, split.first_stage_layers, split.last_stage_layers


def _schedule(trial: NormalTrial, _: Context) -> Values:
    return tuple((schedule,) for schedule in schedules_for(trial.pp, trial.vpp))


def _mbs(_: NormalTrial, context: Context) -> Values:
    return _single({*MICRO_BATCHES, *context.given("mbs")})


def _gbs(_: NormalTrial, context: Context) -> Values:
    pinned = context.pinned.get("gbs")
    return ((pinned,),) if pinned is not None else _single(context.global_batches())


def _recompute(trial: NormalTrial, context: Context) -> Values:
    """None, selective, full by block and by uniform of each number of layers, and the file's."""
    w, capacity = context.workload, stage_capacity(trial.pp, trial.vpp, context.workload)
    kept = inherited_recompute(trial.pp, trial.vpp, w)
    settings = [
        RecomputeSetting(),
        RecomputeSetting("selective", recompute_modules=SELECTIVE_MODULES),
        *(RecomputeSetting("full", "block", n) for n in range(1, capacity + 1)),
        *(RecomputeSetting("full", "uniform", n) for n in range(1, capacity + 1)),
    ]
    if kept.recompute_granularity == "selective":
        settings[1] = kept
    elif kept not in settings:
        whole = RecomputeSetting("full", kept.recompute_method, capacity)
        if kept.counts_layers and kept.recompute_num_layers > capacity and whole in settings:
            settings.remove(whole)  # the file's larger number is its normal form
        settings.append(kept)
    return tuple(tuple(getattr(s, knob) for knob in RECOMPUTE_KNOBS) for s in settings)


def _sharding(_: NormalTrial, __: Context) -> Values:
    both = (False, True)
    return tuple(
        (reduce, gather, distributed, fsdp2)
        for distributed in both
        for fsdp2 in both
        for reduce in both
        for gather in both
    )


def _booleans(_: NormalTrial, __: Context) -> Values:
    return ((False,), (True,))


def _moe_communication(_: NormalTrial, context: Context) -> Values:
    if not context.architecture.is_moe:
        return ((False, 0),)
    return tuple(
        (deepep, stage) for deepep in (False, True) for stage in range(MAX_SYNC_FREE_STAGE + 1)
    )


def _target_ep(trial: NormalTrial, context: Context) -> Values:
    priced = context.baseline.target_ep_size
    return ((None if priced == trial.ep else priced,),)


def _fp8(_: NormalTrial, context: Context) -> Values:
    formats = ["none", "hybrid", "e4m3"]
    if delayed_differs(context.workload) or context.baseline.fp8 == "delayed":
        formats.append("delayed")
    return tuple((name,) for name in formats)


def _single(values: Iterable[Any]) -> Values:
    return tuple((value,) for value in sorted(set(values)))


FACTORS: tuple[Factor, ...] = (
    Factor(("tp",), _divisors_of_world("tp")),
    Factor(("pp",), _divisors_of_world("pp")),
    Factor(("cp",), _divisors_of_world("cp")),
    Factor(("ep",), _ep),
    Factor(("etp",), _etp, ("tp",)),
    Factor(("target_ep_size",), _target_ep, ("ep",)),
    Factor(("use_turbo_deepep", "sync_free_stage"), _moe_communication),
    Factor(
        (
            "overlap_grad_reduce",
            "overlap_param_gather",
            "use_distributed_optimizer",
            "use_torch_fsdp2",
        ),
        _sharding,
    ),
    Factor(("cross_entropy_loss_fusion",), _booleans),
    Factor(("fp8",), _fp8),
    Factor(("vpp", "layout", "first_stage_layers", "last_stage_layers"), _vpp, ("pp",)),
    Factor(("pp_schedule",), _schedule, ("pp", "vpp")),
    Factor(("mbs",), _mbs),
    Factor(("gbs",), _gbs),
    Factor(RECOMPUTE_KNOBS, _recompute, ("pp", "vpp")),
)
"""Factors that read the same knobs stand together, so that few knobs need be remembered at a time:
after `etp`, ep and etp only matter to the next three; after those, only tp, pp and cp do."""
