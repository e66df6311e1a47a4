"""One iteration as the sum of its parts.

iteration = pipeline makespan (compute and exposed TP, CP, EP, FSDP inside the chunks, P2P on the
edges) + exposed data parallelism + optimizer + overhead (Primus Projection, equation 1). The sum
is built from the breakdown, so it is exact by construction.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from projection.kernels import KernelModels
from projection.operations import Collective
from projection.schedules import P2P, Durations, PipelineSchedule, simulate
from projection.time.chunks import ChunkTimes, FsdpOf, TimesOf
from projection.time.cost import Cost, total
from projection.work.chunk import ChunkPlan
from projection.work.linear import BF16_BYTES

CLASS_NAMES = (
    "gemm",
    "attention",
    "elementwise",
    "recompute",
    "tp_comm",
    "cp_comm",
    "ep_comm",
    "fsdp_comm",
    "host_launch",
)
"""Breakdown entries of the classes of `Cost`, in order."""

ROUNDING = 1e-9
"""Idle time below this fraction of the makespan is the simulator's rounding, not a bubble."""


@dataclass(frozen=True, slots=True)
class PipelineTimes:
    """The pipeline's share of an iteration, seen from its busiest rank."""

    breakdown_ms: dict[str, float]
    """Classes of the busiest rank, P2P it waits for, bubble; sums to the makespan."""
    makespan_ms: float
    bubble_ratio: float
    busiest: int
    schedule: PipelineSchedule
    """What ran: of a schedule with others, the fastest."""
    last_backward_ms: float
    """The timeline's; without a pipeline, the backward passes of a microbatch."""


def p2p_delays(
    schedule: PipelineSchedule, residual_tokens: int, hidden: int, models: KernelModels
) -> tuple[P2P, dict[str, str]]:
    """Delay of every edge between virtual stages, in ms, and the algorithm of the slowest.

    The message is one microbatch's residual stream in bf16, both ways.
    """
    size = float(BF16_BYTES * residual_tokens * hidden)
    op = Collective("pipeline_p2p", "sendrecv", size, "pp")
    delays = []
    slowest, algorithm = -1.0, ""
    for (source, _), (target, _) in zip(schedule.homes, schedule.homes[1:], strict=False):
        if source == target:
            delays.append(0.0)
            continue
        priced = models.collective_on(op, models.placement.p2p_group(source, target))
        delays.append(priced.time_ms)
        if priced.time_ms > slowest:
            slowest, algorithm = priced.time_ms, f"{priced.algorithm}/{priced.protocol}"
    edges = tuple(delays)
    return P2P(edges, edges), {"pipeline_p2p": algorithm} if algorithm else {}


def pipeline_times(
    schedule: PipelineSchedule, chunks: Sequence[Sequence[ChunkTimes]], p2p: P2P
) -> PipelineTimes:
    """Run the schedule with these chunks.

    The busiest rank's work is split by class; what it waits for is P2P (the makespan less that of
    the same run with instant transfers) and bubble (the rest).
    """
    m = schedule.num_microbatches
    per_rank = [
        (rank[0].total if len(rank) == 1 else total(chunk.total for chunk in rank)).times(m)
        for rank in chunks
    ]
    busy = [cost.total for cost in per_rank]
    busiest = max(range(len(busy)), key=lambda rank: (busy[rank], -rank))
    if schedule.pp == 1:
        breakdown = _classes(per_rank[0])
        backward_ms = sum(chunk.backward_ms for chunk in chunks[0])
        return PipelineTimes(breakdown, sum(breakdown.values()), 0.0, 0, schedule, backward_ms)
    durations = durations_of(chunks)
    timeline = simulate(schedule, durations, p2p)
    instant = simulate(schedule, durations) if any(p2p.forward) else timeline
    waiting = timeline.makespan_ms - instant.makespan_ms
    idle = timeline.makespan_ms - busy[busiest] - waiting
    breakdown = _classes(per_rank[busiest])
    breakdown["pipeline_p2p"] = max(0.0, waiting)
    breakdown["pipeline_bubble"] = idle if idle > ROUNDING * timeline.makespan_ms else 0.0
    return PipelineTimes(
        breakdown_ms=breakdown,
        makespan_ms=sum(breakdown.values()),
        bubble_ratio=timeline.bubble_ratio,
        busiest=busiest,
        schedule=timeline.schedule,
        last_backward_ms=timeline.last_backward_ms,
    )


def durations_of(chunks: Sequence[Sequence[ChunkTimes]]) -> Durations:
    """Milliseconds of each pass of every chunk, by [rank][chunk]."""
    rows = [[chunk.passes for chunk in rank] for rank in chunks]
    return Durations(*(tuple(tuple(p[at] for p in row) for row in rows) for at in range(3)))


def exposed_by_name(
    row: tuple[ChunkPlan, ...],
    num_microbatches: int,
    times_of: TimesOf,
    fsdp_of: FsdpOf,
    algorithms: dict[str, str],
) -> dict[str, float]:
    """Exposed collectives of one rank over an iteration, in ms by name."""
    exposed: dict[str, float] = {}
    for plan in row:
        for entry in plan.counts:
            again = entry.count + entry.recomputed
            for op in times_of(entry.kind).collectives:
                once = op.forward_ms * again + (op.backward_ms + op.rerun_ms) * entry.count
                exposed[op.name] = exposed.get(op.name, 0.0) + once * num_microbatches
                algorithms.setdefault(op.name, op.algorithm)
            fsdp = fsdp_of(entry.kind)
            for name, value, algorithm in (
                ("fsdp_allgather", fsdp.forward + fsdp.gather_backward, fsdp.gather_algorithm),
                ("fsdp_reduce_scatter", fsdp.scatter, fsdp.scatter_algorithm),
            ):
                if value:
                    more = value * entry.count * num_microbatches
                    exposed[name] = exposed.get(name, 0.0) + more
                    algorithms.setdefault(name, algorithm)
    return exposed


def _classes(cost: Cost) -> dict[str, float]:
    """Breakdown entries of a rank's work."""
    return dict(zip(CLASS_NAMES, cost, strict=True))
