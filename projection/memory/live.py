"""What the memory of every rank is made of over a step: what stays, and what comes and goes.

With the schedule's timeline it gives memory over time; its high-water mark is that of the report's
steady phase.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from projection.memory.overheads import GIB
from projection.memory.rank import ChunkMemory
from projection.memory.report import MemoryReport
from projection.schedules import PipelineSchedule, activation_high_water
from projection.schedules.order import Table


@dataclass(frozen=True, slots=True)
class LiveMemory:
    """In 2^30 bytes, by rank; tables by [rank][chunk] for one microbatch."""

    saved: Table
    """Kept from forward to backward."""
    for_weights: Table
    """Kept from the input gradient to the weight gradient of a split backward pass."""
    base: tuple[float, ...]
    """Everything else at the rank's worst moment: states, transient buffers, overheads."""


def live_memory(
    report: MemoryReport, schedule: PipelineSchedule, chunks: Sequence[Sequence[ChunkMemory]]
) -> LiveMemory:
    """The parts of `report`, whose activations are those of `chunks` under `schedule`."""
    saved = tuple(tuple(chunk.saved / GIB for chunk in row) for row in chunks)
    for_weights = tuple(tuple(chunk.for_weights / GIB for chunk in row) for row in chunks)
    most = activation_high_water(schedule, saved, for_weights)
    return LiveMemory(
        saved=saved,
        for_weights=for_weights,
        base=tuple(
            rank.phases_gb["steady"] - alive for rank, alive in zip(report.ranks, most, strict=True)
        ),
    )
