"""Runs the orders of a schedule operation by operation: the plain meaning of a schedule.

The fast evaluation in `simulate` is compiled from one such run with unit durations, and must give
the same times.
"""

from collections.abc import Sequence

from projection.schedules.order import Costs, Op, Orders
from schemas.errors import ScheduleError

Key = tuple[str, int, int]
"""(F | B | W, stage, microbatch): what must have ended. BW ends as B, and as W."""


def check_complete(orders: Orders, vpp: int, num_microbatches: int) -> None:
    """Every microbatch once through F, and once through BW or both of B and W, in every chunk.

    Raises ScheduleError that names the first ops which are missing, repeated or foreign.
    """
    for rank, order in enumerate(orders):
        seen: dict[tuple[str, int, int], int] = {}
        for op in order:
            for part in ("B", "W") if op.kind == "BW" else (op.kind,):
                part_key = (part, op.microbatch, op.chunk)
                seen[part_key] = seen.get(part_key, 0) + 1
        wanted = {
            (kind, microbatch, chunk)
            for kind in ("F", "B", "W")
            for microbatch in range(num_microbatches)
            for chunk in range(vpp)
        }
        wrong = sorted(wanted.symmetric_difference(seen)) + [k for k, n in seen.items() if n > 1]
        if wrong:
            named = ", ".join(f"{k}(microbatch {m}, chunk {c})" for k, m, c in wrong[:4])
            raise ScheduleError(
                f"rank {rank} does not run every op exactly once: {named} missing, repeated or "
                f"not part of {num_microbatches} microbatches x {vpp} chunks"
            )


def needs(op: Op, stage: int, num_stages: int) -> Key | None:
    """What an op waits for besides its rank, None for the first stage's F."""
    if op.kind == "F":
        return ("F", stage - 1, op.microbatch) if stage > 0 else None
    if op.kind == "W":
        return ("B", stage, op.microbatch)
    if stage == num_stages - 1:
        return ("F", stage, op.microbatch)
    return ("B", stage + 1, op.microbatch)


def start_times(
    orders: Orders, stages: Sequence[Sequence[int]], costs: Costs
) -> tuple[tuple[float, ...], ...]:
    """Start of every op of every rank, in ms, each as early as its rank and its inputs allow.

    `stages` is the virtual stage of each [rank][chunk]. Raises ScheduleError, naming the op every
    blocked rank waits at, when the orders deadlock.
    """
    vpp = len(stages[0])
    num_stages = len(orders) * vpp
    ends: dict[Key, float] = {}
    waiting: dict[Key, int] = {}
    starts: list[list[float]] = [[] for _ in orders]
    clocks = [0.0] * len(orders)
    runnable = list(range(len(orders)))
    while runnable:
        rank = runnable.pop()
        order, began, clock = orders[rank], starts[rank], clocks[rank]
        while len(began) < len(order):
            op = order[len(began)]
            stage = stages[rank][op.chunk]
            key = needs(op, stage, num_stages)
            if key is not None:
                if key not in ends:
                    waiting[key] = rank
                    break
                clock = max(clock, ends[key] + costs.delay(key[1], stage))
            began.append(clock)
            clock += costs.duration(op.kind, rank * vpp + op.chunk)
            done = ("B" if op.kind == "BW" else op.kind, stage, op.microbatch)
            ends[done] = clock
            if done in waiting:
                runnable.append(waiting.pop(done))
        clocks[rank] = clock
    _refuse_deadlock(orders, starts)
    return tuple(map(tuple, starts))


def makespan(orders: Orders, stages: Sequence[Sequence[int]], costs: Costs) -> float:
    """End of the last op, in ms; raises as `start_times` does."""
    vpp, ends = len(stages[0]), [0.0]
    for rank, began in enumerate(start_times(orders, stages, costs)):
        last = orders[rank][-1]
        ends.append(began[-1] + costs.duration(last.kind, rank * vpp + last.chunk))
    return max(ends)


def _refuse_deadlock(orders: Orders, starts: Sequence[Sequence[float]]) -> None:
    blocked = [
        f"rank {rank} at {order[len(began)]}"
        for rank, (order, began) in enumerate(zip(orders, starts, strict=True))
        if len(began) < len(order)
    ]
    if blocked:
        raise ScheduleError(f"the schedule deadlocks: {'; '.join(blocked)}")
