"""V-half and V-min: a repeating building block on a V, squeezed under a limit on memory."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from projection.schedules.execute import makespan
from projection.schedules.greedy import Mode, fill
from projection.schedules.order import Op, OpKind, Orders
from projection.schedules.pass_times import UNIT, PassTimes, equal_stages
from projection.schedules.placement import stage_table
from schemas.errors import ScheduleError

PERIOD = 6
"""F, B and W of two chunks, one unit each."""

Block = tuple[tuple[int, int, int, int], ...]
"""When each rank runs F of chunk 0, F of 1, B of 1 and B of 0 of microbatch 0, in units."""


class Pattern(NamedTuple):
    """A building block by its shape, and how the run that squeezes it may reorder.

    `steps` are the units from rank to rank of F of chunk 0 (down), F of 1 (up), B of 1 (down) and
    B of 0 (up); `gaps` those from the end of one chain to the start of the next, None for the
    smallest whose repetitions do not collide.
    """

    steps: tuple[int, int, int, int]
    gaps: tuple[int, int, int] | None
    mode: Mode


HALF_PATTERNS = (
    Pattern((1, 2, 1, 2), (4, 4, 2), "early-grads"),
    Pattern((1, 2, 1, 2), None, "in-order"),
    Pattern((1, 2, 1, 2), None, "early-forwards"),
)
MIN_PATTERNS = (
    Pattern((1, 1, 1, 1), None, "in-order"),
    Pattern((1, 1, 1, 1), (3, 5, 1), "early-forwards"),
    Pattern((1, 1, 1, 1), None, "early-forwards"),
    *HALF_PATTERNS,
)
"""Each the fastest at some pp in a search over pp 2 to 12, three microbatches a rank, all modes and
gaps, steps up to 3 (half) or 1 (min); a tie went to the pattern that serves more pp. V-half's serve
V-min where few ranks leave it as much memory."""
LONG_BACKWARD = PassTimes(1, 2, 1)
"""Other times than unit ones under which patterns are run: then some keep their pace with unit
passes and are far faster with others."""
USUAL = PassTimes(3, 3, 2)
"""Passes of a transformer, about: attention has no weights, so W is shorter. Of orders that are
equally fast with unit passes, the fastest with these is taken."""


def v_half(pp: int, num_microbatches: int) -> Orders:
    """V-half (Qi et al. 2024): about half the activations of 1F1B, pp/2 + 1 microbatches."""
    return _squeezed(pp, num_microbatches, HALF_PATTERNS, pp + 2)


def v_min(pp: int, num_microbatches: int) -> Orders:
    """V-min (Qi et al. 2024): a third of the activations of 1F1B, floor((pp + 4) / 3) microbatches.

    That is the least at which blocks of step 1 still follow each other without a gap.
    """
    return _squeezed(pp, num_microbatches, MIN_PATTERNS, 2 * ((pp + 4) // 3))


def _squeezed(
    pp: int, num_microbatches: int, patterns: Sequence[Pattern], limit_chunks: int
) -> Orders:
    """The fastest order, with unit passes, that holds at most `limit_chunks` on every rank.

    Every rank repeats its building block (Qi et al. 2024, section 3) every 6 units; the order of F
    and B that results is wanted, and run as early as inputs and memory allow, W's in the gaps.
    """
    spans = dict(_runs(pp, num_microbatches, patterns, limit_chunks))
    if not spans:
        raise ScheduleError(f"no V schedule for {pp} ranks fits {limit_chunks / 2} microbatches")
    shortest = min(spans.values())
    fastest = [orders for orders, span in spans.items() if span == shortest]
    if len(fastest) == 1:
        return fastest[0]
    stages, usual = stage_table("zbv-greedy-half", pp, 2), equal_stages(2 * pp, USUAL)
    return min(fastest, key=lambda orders: makespan(orders, stages, usual))


def _runs(
    pp: int, num_microbatches: int, patterns: Sequence[Pattern], limit_chunks: int
) -> Iterator[tuple[Orders, float]]:
    """Orders from greedy runs of all patterns under two sets of pass times, hopeless ones left out;
    each with its makespan with unit passes."""
    stages, unit = stage_table("zbv-greedy-half", pp, 2), equal_stages(2 * pp, UNIT)
    bar = float("inf")
    for pattern in patterns:
        block = building_block(pp, pattern)
        if block is None:
            continue
        wanted = [_wanted(offsets, num_microbatches) for offsets in block]
        run = fill(wanted, stages, UNIT, limit_chunks, pattern.mode, give_up_at=bar)
        if run is not None:
            bar = min(bar, run.makespan + 1)
            yield run.orders, float(run.makespan)
        run = fill(wanted, stages, LONG_BACKWARD, limit_chunks, pattern.mode)
        if run is not None:
            yield run.orders, makespan(run.orders, stages, unit)


def building_block(pp: int, pattern: Pattern) -> Block | None:
    """The pattern's block on every rank, or None when its repetitions collide on one."""
    any_gap = range(1, PERIOD + 1)
    smallest_first = ((a, b, c) for a, b, c in product(any_gap, repeat=3))
    for gaps in [pattern.gaps] if pattern.gaps else smallest_first:
        chains = _chains(pp, pattern.steps, gaps)
        block = tuple((a, b, c, d) for a, b, c, d in zip(*chains, strict=True))
        if all(len({offset % PERIOD for offset in offsets}) == 4 for offsets in block):
            return block
    return None


def _chains(
    pp: int, steps: tuple[int, int, int, int], gaps: tuple[int, int, int]
) -> list[list[int]]:
    """Start of each of the four chains on every rank, even ones going down, odd ones up."""
    chains: list[list[int]] = []
    start = 0
    for down, step, gap in zip((True, False, True, False), steps, (*gaps, 0), strict=True):
        chain = [start + hop * step for hop in range(pp)]
        start = chain[-1] + gap
        chains.append(chain if down else chain[::-1])
    return chains


def _wanted(offsets: Sequence[int], num_microbatches: int) -> tuple[Op, ...]:
    """A rank's F and B of all microbatches, by the time their blocks run them."""
    passes: tuple[tuple[OpKind, int], ...] = (("F", 0), ("F", 1), ("B", 1), ("B", 0))
    timed = [
        (PERIOD * microbatch + offset, Op(kind, microbatch, chunk))
        for microbatch in range(num_microbatches)
        for (kind, chunk), offset in zip(passes, offsets, strict=True)
    ]
    return tuple(op for _, op in sorted(timed))
