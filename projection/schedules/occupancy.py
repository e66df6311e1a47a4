"""What a rank's activations occupy over time, as its schedule runs."""

from collections.abc import Sequence

from projection.schedules.order import Table, TimedOp
from projection.schedules.simulate import Timeline

Curve = tuple[tuple[float, float], ...]
"""(time in ms, amount from then on), in order of time."""


def held_over_time(
    timeline: Timeline, whole: Table | None = None, for_weights: Table | None = None
) -> tuple[Curve, ...]:
    """What is alive on every rank from each change on, in the unit of the tables.

    `whole[rank][chunk]` is what the forward of one microbatch saves: held from its start to the end
    of its backward; of a split backward, `for_weights` (default: all) stays until the end of W.
    Without tables it is counted in microbatches of a whole stage, of which a chunk is 1/vpp.
    """
    schedule = timeline.schedule
    saved = whole or ((1 / schedule.vpp,) * schedule.vpp,) * schedule.pp
    kept = for_weights or saved
    return tuple(
        _curve(row, saved[rank], kept[rank]) for rank, row in enumerate(timeline.operations())
    )


def _curve(row: Sequence[TimedOp], saved: Sequence[float], kept: Sequence[float]) -> Curve:
    """Amounts are counted, then priced: what is freed leaves no rounding behind."""
    whole, left = [0] * len(saved), [0] * len(saved)
    steps = [(0.0, 0.0)]
    for timed in row:
        chunk, at = timed.op.chunk, timed.end_ms
        if timed.op.kind == "F":
            whole[chunk], at = whole[chunk] + 1, timed.start_ms
        elif timed.op.kind == "W":
            left[chunk] -= 1
        else:
            whole[chunk] -= 1
            left[chunk] += timed.op.kind == "B"
        amount = sum(n * size for n, size in zip(whole, saved, strict=True))
        amount += sum(n * size for n, size in zip(left, kept, strict=True))
        if at == steps[-1][0]:
            steps.pop()
        steps.append((at, amount))
    return tuple(steps)
