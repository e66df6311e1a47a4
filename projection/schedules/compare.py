"""Every schedule on one pipeline of equal stages, side by side."""

from typing import TypedDict, get_args

from projection.schedules.build import build
from projection.schedules.order import Durations
from projection.schedules.pass_times import coarse_pass_times
from projection.schedules.placement import V_SCHEDULES
from projection.schedules.schedule import SolverReport
from projection.schedules.simulate import simulate
from schemas.trial import Schedule


class Solver(TypedDict):
    """How good an order is known to be that was searched for; fractions of the makespan."""

    status: str
    gap: float
    placement_gap: float | None


class Comparison(TypedDict):
    """One schedule's result, in the unit of the durations; in flight per rank, in microbatches."""

    schedule: str
    vpp: int
    makespan: float
    lower_bound: float
    bubble_ratio: float
    peak_in_flight: list[float]
    solver: Solver | None


def compare(
    pp: int, num_microbatches: int, f: float, b: float, w: float, p2p: float = 0.0, vpp: int = 2
) -> list[Comparison]:
    """All schedules with equal stages, in the order of `schemas.trial.Schedule`.

    f, b, w are the durations of a whole stage for one microbatch, of which a chunk takes 1/VPP; p2p
    is the delay between neighbouring ranks. `vpp` is that of `interleaved`; the others have their
    own. Raises ScheduleError for a size below 1 (`vpp` below 2) or a number that is negative.
    """
    return [
        _run(schedule, pp, chunks, num_microbatches, (f, b, w, p2p))
        for schedule in get_args(Schedule)
        for chunks in [vpp if schedule == "interleaved" else 2 if schedule in V_SCHEDULES else 1]
    ]


def _run(
    schedule: Schedule, pp: int, vpp: int, m: int, times: tuple[float, float, float, float]
) -> Comparison:
    f, b, w, p2p = times
    durations = Durations.uniform(pp, vpp, f, b, w)
    built = build(schedule, pp, vpp, m, coarse_pass_times(durations, p2p))
    timeline = simulate(built, durations, p2p)
    return Comparison(
        schedule=schedule,
        vpp=vpp,
        makespan=timeline.makespan_ms,
        lower_bound=timeline.lower_bound_ms,
        bubble_ratio=timeline.bubble_ratio,
        peak_in_flight=list(timeline.peak_in_flight),
        solver=_solver(built.solver),
    )


def _solver(report: SolverReport | None) -> Solver | None:
    if report is None:
        return None
    return Solver(status=report.status, gap=report.gap, placement_gap=report.placement_gap)
