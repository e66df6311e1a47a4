"""Builds a schedule by name, once, and lengthens its repeating pattern instead of building more."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import lcm
from typing import get_args

from projection.schedules.ilp import MAX_PASSES, place_grads
from projection.schedules.interleaved import group_size, interleaved
from projection.schedules.one_f_one_b import one_f_one_b
from projection.schedules.order import Durations, Orders
from projection.schedules.pass_times import UNIT, PassTimes
from projection.schedules.schedule import (
    PipelineSchedule,
    SolverReport,
    from_orders,
    lengthened,
    repeated,
)
from projection.schedules.simulate import simulate
from projection.schedules.v_greedy import v_half, v_min
from projection.schedules.zb_heuristic import zb_heuristic
from projection.schedules.zbv_formatted import zbv_formatted
from projection.schedules.zero_bubble import zero_bubble
from schemas.errors import ScheduleError
from schemas.trial import Schedule

Periods = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Recipe:
    """How a schedule's orders are made, for which VPP, and by how many microbatches they repeat."""

    orders: Callable[[int, int, int, int, PassTimes], Orders]
    """From pp, vpp, microbatches, the first period, and pass times if it is fitted to them."""
    takes_vpp: Callable[[int], bool]
    vpp_rule: str
    periods: Callable[[int, int], Periods]
    """Microbatches a repetition may advance, from pp and microbatches."""
    fitted: bool = False
    shortest: int = 1
    """Microbatches of the shortest order that is lengthened. An order searched for, that is, may be
    the best for a handful of microbatches and repeat badly."""
    by_halves: bool = False
    """Whether the order of half the microbatches may run twice instead, and so on: an order made
    for unit passes may be slower than that with others."""


def _fixed(orders: Callable[[int, int], Orders], vpp: int) -> _Recipe:
    """An order that depends on nothing but pp and microbatches, and repeats with each of them."""
    return _Recipe(
        lambda pp, _vpp, m, *_: orders(pp, m), lambda v: v == vpp, f"VPP {vpp}", lambda *_: (1,)
    )


def _v_greedy(orders: Callable[[int, int], Orders]) -> _Recipe:
    """A squeezed V. On two ranks its microbatches take turns, and it repeats with every other."""
    return replace(
        _fixed(orders, 2),
        periods=lambda pp, _: (2,) if pp == 2 else (1,),
        shortest=12,
        by_halves=True,
    )


_RECIPES: dict[str, _Recipe] = {
    "1f1b": _fixed(one_f_one_b, 1),
    "interleaved": _Recipe(
        lambda pp, vpp, m, group, _times: interleaved(pp, vpp, m, group),
        lambda vpp: vpp > 1,
        "VPP above 1",
        lambda pp, m: (group_size(pp, m),),
    ),
    "zero-bubble": _fixed(zero_bubble, 1),
    "zb-heuristic": _Recipe(
        lambda pp, _vpp, m, _period, times: zb_heuristic(pp, m, times),
        lambda vpp: vpp == 1,
        "VPP 1",
        lambda *_: (1, 2, 3),
        fitted=True,
    ),
    "zbv-formatted": _fixed(zbv_formatted, 2),
    "zbv-greedy-half": _v_greedy(v_half),
    "zbv-greedy-min": _v_greedy(v_min),
}
_SOLVED = "ilp"


def build(
    schedule: Schedule, pp: int, vpp: int, num_microbatches: int, times: PassTimes = UNIT
) -> PipelineSchedule:
    """The order of every rank's passes; cached, and the same for the same arguments.

    The V-greedy ones come with others, of which whoever runs them takes the fastest.

    `times` are what `zb-heuristic` and `ilp` fit their order to (see `coarse_pass_times`); all
    other orders are fixed by the sizes alone. Raises ScheduleError when the schedule does not exist
    for this VPP, or a size is below 1.
    """
    if schedule not in _RECIPES and schedule != _SOLVED:
        raise ScheduleError(f"no schedule '{schedule}'; there are {', '.join(get_args(Schedule))}")
    for name, value in (("pp", pp), ("vpp", vpp), ("microbatches", num_microbatches)):
        if value < 1:
            raise ScheduleError(f"{name} is {value}; a pipeline has at least 1")
    if min(times[:3]) < 1 or times.p2p < 0:
        raise ScheduleError(f"pass times must be whole and at least 1 (P2P 0), not {tuple(times)}")
    recipe = _RECIPES["zb-heuristic" if schedule == _SOLVED else schedule]
    if not recipe.takes_vpp(vpp):
        raise ScheduleError(f"schedule '{schedule}' needs {recipe.vpp_rule}, not VPP {vpp}")
    if schedule == _SOLVED:
        return _solve(pp, num_microbatches, times)
    if recipe.by_halves:
        return _with_halves(schedule, pp, vpp, num_microbatches)
    return _build(schedule, pp, vpp, num_microbatches, times if recipe.fitted else UNIT)


@lru_cache(maxsize=512)
def _with_halves(schedule: str, pp: int, vpp: int, num_microbatches: int) -> PipelineSchedule:
    """With the orders of a half, a quarter, … of the microbatches, each run as often as it takes.

    So twice the microbatches hardly ever take more than twice the time, whatever passes take. Left
    out is what repeats the very pattern that the whole order repeats, and parts of fewer
    microbatches than are in flight: they never fill the pipeline.
    """
    whole = _build(schedule, pp, vpp, num_microbatches, UNIT)
    in_flight = int(max(whole.peak_in_flight))
    others, part = [], num_microbatches
    while part % 2 == 0 and part // 2 >= in_flight:
        part //= 2
        short = _build(schedule, pp, vpp, part, UNIT)
        if short.program.rows != whole.program.rows:
            others.append(repeated(short, num_microbatches // part))
    return replace(whole, others=tuple(others))


@lru_cache(maxsize=2048)
def _build(
    schedule: str, pp: int, vpp: int, num_microbatches: int, times: PassTimes
) -> PipelineSchedule:
    """From the shortest schedule whose pattern repeats to this one, else built in full."""
    periods = _RECIPES[schedule].periods(pp, num_microbatches)
    common = lcm(*periods)
    for least in (pp + 3 * common, 2 * pp + 3 * common + 4, 4 * (pp + 3 * common)):
        least = max(least, _RECIPES[schedule].shortest)
        few = least + (num_microbatches - least) % common
        if few < num_microbatches:
            short = _compile(schedule, pp, vpp, few, periods, times)
            longer = lengthened(short, num_microbatches)
            if longer is not None:
                return longer
    return _compile(schedule, pp, vpp, num_microbatches, periods, times)


@lru_cache(maxsize=256)
def _compile(
    schedule: str, pp: int, vpp: int, num_microbatches: int, periods: Periods, times: PassTimes
) -> PipelineSchedule:
    orders = _RECIPES[schedule].orders(pp, vpp, num_microbatches, periods[0], times)
    return from_orders(schedule, orders, vpp, num_microbatches, periods)


@lru_cache(maxsize=256)
def _solve(pp: int, num_microbatches: int, times: PassTimes) -> PipelineSchedule:
    """`ilp`: the greedy schedule where it is optimal or too large for the solver, else solved."""
    greedy = _build("zb-heuristic", pp, 1, num_microbatches, times)
    f, b, w, p2p = times
    timeline = simulate(greedy, Durations.uniform(pp, 1, f, b, w), float(p2p))
    makespan, bound = timeline.makespan_ms, timeline.lower_bound_ms
    if makespan > bound and pp * num_microbatches <= MAX_PASSES:
        solved = place_grads(pp, num_microbatches, times)
        schedule = from_orders(_SOLVED, solved.orders, 1, num_microbatches)
        return replace(schedule, solver=solved.report)
    status = f"the greedy order meets the lower bound at F:B:W:P2P {f}:{b}:{w}:{p2p}"
    if makespan > bound:
        status = f"pp x microbatches is above {MAX_PASSES}: the greedy order stands, unsolved"
    gap = (makespan - bound) / makespan
    report = SolverReport(status, makespan, makespan, bound, gap, None, 0)
    return replace(greedy, name=_SOLVED, solver=report)
