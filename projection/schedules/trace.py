"""A schedule's timeline as a Chrome trace, which Perfetto and chrome://tracing open."""

from collections.abc import Sequence
from typing import Any

from projection.schedules.occupancy import Curve, held_over_time
from projection.schedules.order import TimedOp
from projection.schedules.simulate import Timeline

_NAMES = {"F": "forward", "B": "input gradient", "W": "weight gradient", "BW": "backward"}


def chrome_trace(
    timeline: Timeline, held: Sequence[Curve] | None = None, unit: str = "microbatches"
) -> dict[str, Any]:
    """The trace as the object to be written as JSON: a thread per rank, and what it holds.

    Times are microseconds, as the format has them. `held` is what a counter per rank shows, in
    `unit`; by default microbatches of a whole stage in flight (see `held_over_time`).
    """
    curves = held_over_time(timeline) if held is None else held
    events: list[dict[str, Any]] = []
    for rank, row in enumerate(timeline.operations()):
        events.append(_thread(rank))
        events += map(_complete, row)
        events += [_counter(rank, at_ms, amount, unit) for at_ms, amount in curves[rank]]
    return {"displayTimeUnit": "ms", "traceEvents": events}


def _thread(rank: int) -> dict[str, Any]:
    args = {"name": f"rank {rank}"}
    return {"ph": "M", "name": "thread_name", "pid": 0, "tid": rank, "args": args}


def _complete(timed: TimedOp) -> dict[str, Any]:
    op = timed.op
    return {
        "ph": "X",
        "name": f"{op.kind} {op.microbatch}",
        "cat": _NAMES[op.kind],
        "pid": 0,
        "tid": timed.rank,
        "ts": timed.start_ms * 1e3,
        "dur": (timed.end_ms - timed.start_ms) * 1e3,
        "args": {"microbatch": op.microbatch, "chunk": op.chunk},
    }


def _counter(rank: int, at_ms: float, held: float, unit: str) -> dict[str, Any]:
    name = "in flight" if unit == "microbatches" else "memory"
    return {
        "ph": "C",
        "name": f"{name}, rank {rank}",
        "pid": 0,
        "tid": rank,
        "ts": at_ms * 1e3,
        "args": {unit: held},
    }
