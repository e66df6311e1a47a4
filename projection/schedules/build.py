"""Builds a schedule by name, once, and lengthens its repeating pattern instead of building more."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import get_args

from projection.schedules.interleaved import group_size, interleaved
from projection.schedules.one_f_one_b import one_f_one_b
from projection.schedules.order import Orders
from projection.schedules.schedule import PipelineSchedule, from_orders, lengthened
from schemas.errors import ScheduleError
from schemas.trial import Schedule


@dataclass(frozen=True, slots=True)
class _Recipe:
    """How a schedule's orders are made, for which VPP, and by how many microbatches they repeat."""

    orders: Callable[[int, int, int], Orders]
    """From pp, vpp and microbatches."""
    takes_vpp: Callable[[int], bool]
    vpp_rule: str
    period: Callable[[int, int], int]
    """Microbatches a repetition advances, from pp and microbatches."""


def _one_chunk(orders: Callable[[int, int], Orders]) -> _Recipe:
    return _Recipe(lambda pp, _, m: orders(pp, m), lambda vpp: vpp == 1, "VPP 1", lambda *_: 1)


_RECIPES: dict[str, _Recipe] = {
    "1f1b": _one_chunk(one_f_one_b),
    "interleaved": _Recipe(interleaved, lambda vpp: vpp > 1, "VPP above 1", group_size),
}


def build(schedule: Schedule, pp: int, vpp: int, num_microbatches: int) -> PipelineSchedule:
    """The order of every rank's passes; cached, and the same for the same arguments.

    Raises ScheduleError when the schedule does not exist for this VPP, or a size is below 1.
    """
    if schedule not in _RECIPES:
        raise ScheduleError(f"no schedule '{schedule}'; there are {', '.join(get_args(Schedule))}")
    for name, value in (("pp", pp), ("vpp", vpp), ("microbatches", num_microbatches)):
        if value < 1:
            raise ScheduleError(f"{name} is {value}; a pipeline has at least 1")
    recipe = _RECIPES[schedule]
    if not recipe.takes_vpp(vpp):
        raise ScheduleError(f"schedule '{schedule}' needs {recipe.vpp_rule}, not VPP {vpp}")
    return _build(schedule, pp, vpp, num_microbatches)


@lru_cache(maxsize=4096)
def _build(schedule: str, pp: int, vpp: int, num_microbatches: int) -> PipelineSchedule:
    period = _RECIPES[schedule].period(pp, num_microbatches)
    regular = _RECIPES[schedule].period(pp, num_microbatches + period) == period
    for least in (
        (pp + 3 * period + 4, 2 * pp + 6 * period, 4 * (pp + 3 * period)) if regular else ()
    ):
        few = least + (num_microbatches - least) % period
        if few < num_microbatches:
            longer = lengthened(_compile(schedule, pp, vpp, few, period), num_microbatches)
            if longer is not None:
                return longer
    return _compile(schedule, pp, vpp, num_microbatches, period)


@lru_cache(maxsize=512)
def _compile(
    schedule: str, pp: int, vpp: int, num_microbatches: int, period: int
) -> PipelineSchedule:
    orders = _RECIPES[schedule].orders(pp, vpp, num_microbatches)
    return from_orders(schedule, orders, vpp, num_microbatches, period)
