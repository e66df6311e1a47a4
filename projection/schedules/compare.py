"""Schedules on one pipeline of equal stages, and what there is to say of a run in numbers."""

from typing import NamedTuple, NotRequired, TypedDict, get_args

from projection.schedules.build import build
from projection.schedules.order import Durations
from projection.schedules.pass_times import coarse_pass_times
from projection.schedules.placement import V_SCHEDULES
from projection.schedules.simulate import Timeline, simulate
from schemas.trial import Schedule


class Solver(TypedDict):
    """How good an order is known to be that was searched for; fractions of the makespan."""

    status: str
    """What ended the search, in words."""
    gap: float
    """To the lower bound of any order, with these durations."""
    placement_gap: float | None
    """To the solver's own bound, for its order of F and B and durations rounded to 1/24."""


class Summary(TypedDict):
    """One schedule's result, in the unit of the durations; in flight per rank, in microbatches."""

    schedule: str
    vpp: int
    makespan: float
    lower_bound: float
    bubble_ratio: float
    peak_in_flight: list[float]
    solver: NotRequired[Solver]
    """Of a schedule that was solved for."""


class EqualStages(NamedTuple):
    """A pipeline all of whose stages take the same.

    f, b, w are the durations of a whole stage for one microbatch, of which a chunk takes 1/VPP; p2p
    is the delay between neighbouring ranks.
    """

    pp: int
    num_microbatches: int
    f: float
    b: float
    w: float
    p2p: float = 0.0

    def run(self, schedule: Schedule, vpp: int) -> Timeline:
        """The schedule on this pipeline, fitted to its durations where it is of those that are.

        Raises ScheduleError when it does not exist for this VPP, for a size below 1, or a number
        that is negative.
        """
        durations = Durations.uniform(self.pp, vpp, self.f, self.b, self.w)
        times = coarse_pass_times(durations, self.p2p)
        return simulate(
            build(schedule, self.pp, vpp, self.num_microbatches, times), durations, self.p2p
        )


def usual_vpp(schedule: str, several: int = 2) -> int:
    """Chunks per rank of a schedule: `several` where any number above one will do."""
    if schedule == "interleaved":
        return several
    return 2 if schedule in V_SCHEDULES else 1


def compare(pipeline: EqualStages, vpp: int = 2) -> list[Summary]:
    """All schedules, in the order of `schemas.trial.Schedule`; `vpp` is that of `interleaved`.

    Raises as `EqualStages.run`.
    """
    schedules = get_args(Schedule)
    return [summary(pipeline.run(each, usual_vpp(each, vpp))) for each in schedules]


def summary(timeline: Timeline) -> Summary:
    """A run in numbers."""
    schedule = timeline.schedule
    found = Summary(
        schedule=schedule.name,
        vpp=schedule.vpp,
        makespan=timeline.makespan_ms,
        lower_bound=timeline.lower_bound_ms,
        bubble_ratio=timeline.bubble_ratio,
        peak_in_flight=list(timeline.peak_in_flight),
    )
    report = schedule.solver
    if report is not None:
        span = timeline.makespan_ms
        gap = (span - timeline.lower_bound_ms) / span if span > 0 else 0.0
        found["solver"] = Solver(status=report.status, gap=gap, placement_gap=report.placement_gap)
    return found
