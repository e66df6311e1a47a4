"""Pipeline schedules: who runs what when, how long it takes, and what it keeps alive."""

from projection.schedules.build import build
from projection.schedules.compare import EqualStages, Summary, compare, summary, usual_vpp
from projection.schedules.memory import activation_high_water
from projection.schedules.occupancy import Curve, held_over_time
from projection.schedules.order import P2P, Durations, Op, TimedOp
from projection.schedules.pass_times import PassTimes, coarse_pass_times
from projection.schedules.placement import V_SCHEDULES, stage_of
from projection.schedules.schedule import PipelineSchedule, SolverReport, from_orders
from projection.schedules.simulate import Timeline, simulate

__all__ = [
    "P2P",
    "V_SCHEDULES",
    "Curve",
    "Durations",
    "EqualStages",
    "Op",
    "PassTimes",
    "PipelineSchedule",
    "SolverReport",
    "Summary",
    "TimedOp",
    "Timeline",
    "activation_high_water",
    "build",
    "coarse_pass_times",
    "compare",
    "from_orders",
    "held_over_time",
    "simulate",
    "stage_of",
    "summary",
    "usual_vpp",
]
