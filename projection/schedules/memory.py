"""Activation bytes of a schedule: counts of what is alive, priced."""

from projection.schedules.order import Table
from projection.schedules.schedule import PipelineSchedule
from schemas.errors import ScheduleError


def activation_high_water(
    schedule: PipelineSchedule, bytes_per_chunk: Table, for_weights: Table | None = None
) -> tuple[float, ...]:
    """Most activation bytes alive at once on every rank.

    `bytes_per_chunk[rank][chunk]` is what F of one microbatch saves; BW frees it. A split backward
    pass keeps `for_weights[rank][chunk]` from the end of B to the end of W, by default all of it.
    Raises ScheduleError when a table's shape is not the schedule's.
    """
    kept = bytes_per_chunk if for_weights is None else for_weights
    for name, table in (("bytes_per_chunk", bytes_per_chunk), ("for_weights", kept)):
        if len(table) != schedule.pp or any(len(row) != schedule.vpp for row in table):
            raise ScheduleError(
                f"{name} is not a table of {schedule.pp} ranks x {schedule.vpp} chunks"
            )
    return tuple(
        max(
            sum(n * size for n, size in zip(state.whole, whole, strict=True))
            + sum(n * size for n, size in zip(state.for_weights, left, strict=True))
            for state in states
        )
        for states, whole, left in zip(schedule.live_states, bytes_per_chunk, kept, strict=True)
    )
