"""Times a compiled schedule, exactly and without running what provably repeats."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import add, itemgetter

from projection.schedules.bounds import lower_bound_ms
from projection.schedules.execute import start_times
from projection.schedules.order import P2P, Costs, Durations, TimedOp, exact_costs
from projection.schedules.program import Program, Segment
from projection.schedules.repeat import PlainRow, advance, run_all, run_repeats
from projection.schedules.schedule import PipelineSchedule


@dataclass(frozen=True, slots=True)
class Timeline:
    """What one run of a schedule takes.

    `bubble_ratio` is the idle fraction of the mean rank: (makespan - mean busy) / makespan.
    `peak_in_flight` counts, per rank, microbatches of a whole stage (a chunk is 1/vpp) from the
    start of F to the end of BW, or of W where the backward pass is split. `extrapolated` says that
    part of the run was not evaluated because it repeats; the numbers are the same bit for bit.
    """

    schedule: PipelineSchedule
    makespan_ms: float
    busy_ms: tuple[float, ...]
    bubble_ratio: float
    extrapolated: bool
    last_backward_ms: float
    """From when the first rank has weight gradients of its last microbatch, to the end."""
    costs: Costs = field(repr=False)

    @property
    def peak_in_flight(self) -> tuple[float, ...]:
        """Most microbatches alive at once, per rank, in units of a whole stage."""
        return self.schedule.peak_in_flight

    @property
    def lower_bound_ms(self) -> float:
        """A time no order of these passes on these ranks can beat."""
        schedule = self.schedule
        return lower_bound_ms(
            schedule.stages, schedule.num_microbatches, schedule.splits_backward, self.costs
        )

    def operations(self) -> tuple[tuple[TimedOp, ...], ...]:
        """Start and end of every operation, per rank, in the order it runs them."""
        orders = self.schedule.orders
        starts = start_times(orders, self.schedule.stages, self.costs)
        vpp = self.schedule.vpp
        timed = []
        for rank, (order, began) in enumerate(zip(orders, starts, strict=True)):
            row = []
            for op, start in zip(order, began, strict=True):
                slot = rank * vpp + op.chunk
                row.append(TimedOp(rank, op, start, start + self.costs.duration(op.kind, slot)))
            timed.append(tuple(row))
        return tuple(timed)


def simulate(
    schedule: PipelineSchedule,
    durations: Durations,
    p2p_ms: P2P | float = 0.0,
    *,
    extrapolate: bool = True,
) -> Timeline:
    """Run a schedule: every op as early as its rank's order, its inputs and P2P delays allow.

    Of a schedule with others the fastest runs, and is the timeline's. `p2p_ms` is one delay for
    every edge between ranks, or one per edge and direction. Raises ScheduleError when a table has
    the wrong shape or holds a negative or non-finite number.
    """
    costs = exact_costs(durations, p2p_ms, schedule.homes, schedule.num_microbatches)
    runs = ((*_makespan(one.program, costs, extrapolate), one) for one in schedule.alternatives)
    makespan, extrapolated, last_backward, fastest = min(runs, key=itemgetter(0))
    vpp, m = schedule.vpp, schedule.num_microbatches
    per_chunk = list(map(add, map(add, costs.forward, costs.input_grad), costs.weight_grad))
    busy = tuple(m * sum(per_chunk[at : at + vpp]) for at in range(0, len(per_chunk), vpp))
    idle = makespan - sum(busy) / len(busy)
    return Timeline(
        fastest,
        makespan,
        busy,
        idle / makespan if makespan > 0 else 0.0,
        extrapolated,
        last_backward,
        costs,
    )


def _makespan(program: Program, costs: Costs, extrapolate: bool) -> tuple[float, bool, float]:
    """End of the last op, whether repeats were skipped, and `Timeline.last_backward_ms`."""
    both = map(add, costs.input_grad, costs.weight_grad)
    flat = [0.0, *costs.forward, *costs.input_grad, *costs.weight_grad, *both, *costs.up]
    flat += costs.down
    flat += [sum(map(flat.__getitem__, parts)) for parts in program.sums]
    ends = [0.0]
    advance(ends, _rows(program.prologue, flat))
    extrapolated = False
    if program.repeats:
        block, window = tuple(_rows(program.block, flat)), program.window
        ends = _last(ends, window)
        if extrapolate:
            places = program.block_places
            ends, extrapolated = run_repeats(ends, block, places, program.repeats, window)
        else:
            ends = run_all(ends, block, program.repeats, window)
    else:
        ends = _last(ends, program.window)
    advance(ends, _rows(program.epilogue, flat))
    last = map(ends.__getitem__, program.last_at)
    makespan = max(map(add, last, map(flat.__getitem__, program.last_gap)))
    place, duration = program.last_backward
    return makespan, extrapolated, makespan - (ends[place] - flat[duration])


def _rows(segment: Segment, flat: Sequence[float]) -> Iterable[PlainRow]:
    costs = segment.gap(flat), segment.delay(flat), segment.duration(flat)
    return zip(segment.rank_at, segment.cross_at, *costs, strict=True)


def _last(ends: list[float], window: int) -> list[float]:
    """The last `window` ends, padded in front with what no row reads when there are fewer."""
    return [0.0] * (window - len(ends)) + ends[-window:]
