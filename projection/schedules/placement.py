"""Where the virtual stages of a pipeline live: round-robin over the ranks, or folded into a V."""

from collections.abc import Sequence

from schemas.errors import ScheduleError

V_SCHEDULES = frozenset({"zbv-formatted", "zbv-greedy-half", "zbv-greedy-min"})
"""Schedules whose second chunk runs back over the ranks, so rank 0 holds both model ends."""


def stage_of(schedule: str, rank: int, chunk: int, pp: int, vpp: int) -> int:
    """Index in model order, 0 .. pp·vpp-1, of the virtual stage that `rank` runs as `chunk`.

    Round-robin: chunk c of rank r is stage c·pp + r (Narayanan et al. 2021, section 2.2). In the V
    of zbv-*, odd chunks run from the last rank to the first: stage (c + 1)·pp - 1 - r (Qi et al.
    2024, figure 2). Raises ScheduleError when rank or chunk is outside the pipeline.
    """
    if not (0 <= rank < pp and 0 <= chunk < vpp):
        raise ScheduleError(
            f"rank {rank}, chunk {chunk} is outside a pipeline of {pp} ranks x {vpp} chunks"
        )
    if schedule in V_SCHEDULES and chunk % 2 == 1:
        return (chunk + 1) * pp - 1 - rank
    return chunk * pp + rank


def stage_table(schedule: str, pp: int, vpp: int) -> tuple[tuple[int, ...], ...]:
    """Virtual stage of every [rank][chunk]."""
    return tuple(
        tuple(stage_of(schedule, rank, chunk, pp, vpp) for chunk in range(vpp))
        for rank in range(pp)
    )


def homes(stages: Sequence[Sequence[int]]) -> tuple[tuple[int, int], ...]:
    """Inverse of a stage table: (rank, chunk) of every virtual stage, in model order."""
    pairs = [
        (stage, rank, chunk) for rank, row in enumerate(stages) for chunk, stage in enumerate(row)
    ]
    return tuple((rank, chunk) for _, rank, chunk in sorted(pairs))
