"""A pipeline schedule: built once, immutable, and run with any durations."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

from projection.schedules.compile import compile_orders
from projection.schedules.live import LiveState, live_states, peak_in_flight
from projection.schedules.order import Orders
from projection.schedules.placement import homes, stage_table
from projection.schedules.program import Program, extended, orders_of


class SolverReport(NamedTuple):
    """How good an `ilp` order is known to be. Times are in the units of its PassTimes."""

    status: str
    """What ended the search, in words."""
    makespan: float
    greedy_makespan: float
    """Of the incumbent that the solver started from."""
    lower_bound: float
    """No order of any passes beats it; see `lower_bound_ms`."""
    gap: float
    """(makespan - lower_bound) / makespan."""
    placement_gap: float | None
    """The same against HiGHS's bound for the chosen order of F and B; None when it did not run."""
    nodes: int


@dataclass(frozen=True, eq=False)
class PipelineSchedule:
    """The order of every rank's passes, compiled. Compared by identity: `build` caches.

    `peak_in_flight` and `live_states` (the most demanding combinations of what is alive, per rank)
    follow from the order alone: a rank runs one op at a time.
    """

    name: str
    pp: int
    vpp: int
    num_microbatches: int
    stages: tuple[tuple[int, ...], ...] = field(repr=False)
    """Virtual stage of every [rank][chunk]."""
    homes: tuple[tuple[int, int], ...] = field(repr=False)
    """(rank, chunk) of every virtual stage."""
    splits_backward: bool
    program: Program = field(repr=False)
    live_states: tuple[tuple[LiveState, ...], ...] = field(repr=False)
    peak_in_flight: tuple[float, ...]
    solver: SolverReport | None = None
    """Of `ilp`: how good the order is known to be."""
    others: tuple["PipelineSchedule", ...] = field(default=(), repr=False)
    """Orders of the same passes, one of which runs instead where it is faster; see `simulate`."""

    @property
    def alternatives(self) -> tuple["PipelineSchedule", ...]:
        """This schedule and the others, of which the fastest runs; of equally fast ones this."""
        return (self, *self.others)

    @cached_property
    def orders(self) -> Orders:
        """Every rank's operations in order, written out."""
        return orders_of(self.program, self.pp)


def from_orders(
    name: str, orders: Orders, vpp: int, num_microbatches: int, periods: Sequence[int] = (1,)
) -> PipelineSchedule:
    """Compile per-rank orders; the stages' placement follows from the schedule's name.

    `periods` are how many microbatches a repetition may advance, if the orders repeat.
    Raises ScheduleError when the orders are incomplete or deadlock.
    """
    pp = len(orders)
    stages = stage_table(name, pp, vpp)
    program = compile_orders(orders, stages, num_microbatches, periods)
    states = tuple(live_states(order, vpp) for order in orders)
    return PipelineSchedule(
        name=name,
        pp=pp,
        vpp=vpp,
        num_microbatches=num_microbatches,
        stages=stages,
        homes=homes(stages),
        splits_backward=any(op.kind == "W" for order in orders for op in order),
        program=program,
        live_states=states,
        peak_in_flight=tuple(peak_in_flight(rank_states, vpp) for rank_states in states),
    )


def repeated(schedule: PipelineSchedule, times: int) -> PipelineSchedule:
    """The schedule's order `times` times, one behind the other: every rank goes on at once.

    It never takes longer than so many runs apart, and holds on no rank more than one of them.
    """
    period = schedule.num_microbatches
    for copies in (4, 8):
        if copies < times:
            longer = lengthened(_copies(schedule, copies), period * times)
            if longer is not None:
                return longer
    return _copies(schedule, times)


def _copies(schedule: PipelineSchedule, times: int) -> PipelineSchedule:
    period = schedule.num_microbatches
    orders = tuple(
        tuple(
            op._replace(microbatch=op.microbatch + period * copy)
            for copy in range(times)
            for op in order
        )
        for order in schedule.orders
    )
    return from_orders(schedule.name, orders, schedule.vpp, period * times, (period,))


def lengthened(schedule: PipelineSchedule, num_microbatches: int) -> PipelineSchedule | None:
    """The same pattern over more microbatches, or None where it does not repeat that way.

    What is alive is unchanged: a block frees on every rank what it allocates.
    """
    program = schedule.program
    more, rest = divmod(num_microbatches - schedule.num_microbatches, program.period_microbatches)
    if rest or more < 0 or not program.extendable:
        return None
    return replace(schedule, num_microbatches=num_microbatches, program=extended(program, more))
