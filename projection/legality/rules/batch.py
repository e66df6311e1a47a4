"""Micro and global batch sizes."""

from projection.degrees import attention_replica, data_parallel
from projection.legality.context import Context
from projection.legality.rules.rule import Rule
from schemas.trial import NormalTrial

MICRO_BATCHES = (1, 2, 4, 8, 16)
"""What a proposal may use beside the workload's own micro batch."""


def mbs_not_power_of_two(trial: NormalTrial, context: Context) -> str | None:
    """Micro batches are powers of two up to 16, or the workload's own."""
    mbs = trial.mbs
    if mbs in MICRO_BATCHES or mbs in context.given("mbs"):
        return None
    nearest = min(MICRO_BATCHES, key=lambda value: abs(value - mbs))
    return f"mbs {mbs} is not a power of two up to {MICRO_BATCHES[-1]}; the nearest is {nearest}"


def gbs_not_divisible(trial: NormalTrial, context: Context) -> str | None:
    """Every data-parallel rank runs the same whole number of micro batches."""
    if context.world % attention_replica(trial):
        return None  # dp is not a number then, and another rule says so
    dp = data_parallel(trial, context.world)
    if trial.gbs % (trial.mbs * dp) == 0:
        return None
    return f"gbs {trial.gbs} is not a multiple of mbs·dp = {trial.mbs}·{dp} = {trial.mbs * dp}"


def gbs_not_searched(trial: NormalTrial, context: Context) -> str | None:
    """A freed global batch is a doubling of the workload's, up to the maximum."""
    allowed = context.global_batches()
    if "gbs" in context.inherited or "gbs" in context.pinned or trial.gbs in allowed:
        return None
    return f"gbs {trial.gbs} is not one of {', '.join(map(str, allowed))}"


RULES = (
    Rule("mbs_not_power_of_two", mbs_not_power_of_two, ("mbs",), elsewhere="allow"),
    Rule("gbs_not_divisible", gbs_not_divisible, ("tp", "cp", "pp", "mbs", "gbs")),
    Rule("gbs_not_searched", gbs_not_searched, ("gbs",), elsewhere="allow"),
)
