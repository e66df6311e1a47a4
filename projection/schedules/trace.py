"""A schedule's timeline as a Chrome trace, which Perfetto and chrome://tracing open."""

from typing import Any

from projection.schedules.order import TimedOp
from projection.schedules.simulate import Timeline

_NAMES = {"F": "forward", "B": "input gradient", "W": "weight gradient", "BW": "backward"}


def chrome_trace(timeline: Timeline) -> dict[str, Any]:
    """The trace as the object to be written as JSON: a thread per rank, and what it holds.

    Times are microseconds, as the format has them. The counter is in microbatches of a whole stage,
    each from the start of its F to the end of its BW or W.
    """
    vpp = timeline.schedule.vpp
    events: list[dict[str, Any]] = []
    for rank, row in enumerate(timeline.operations()):
        events.append(
            {
                "ph": "M",
                "name": "thread_name",
                "pid": 0,
                "tid": rank,
                "args": {"name": f"rank {rank}"},
            }
        )
        held = 0
        for timed in row:
            events.append(_complete(timed))
            if timed.op.kind == "F":
                held += 1
                events.append(_counter(rank, timed.start_ms, held / vpp))
            elif timed.op.kind in ("W", "BW"):
                held -= 1
                events.append(_counter(rank, timed.end_ms, held / vpp))
    return {"displayTimeUnit": "ms", "traceEvents": events}


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


def _counter(rank: int, at_ms: float, held: float) -> dict[str, Any]:
    return {
        "ph": "C",
        "name": f"in flight, rank {rank}",
        "pid": 0,
        "tid": rank,
        "ts": at_ms * 1e3,
        "args": {"microbatches": held},
    }
