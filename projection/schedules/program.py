"""Orders compiled to rows that are evaluated in one pass, with the period they repeat found.

A row is one F, B or BW; the W's of its rank that come before it are a gap in front of it. Rows
stand in a topological order (by start with unit durations), and name their two predecessors, the
rank's previous row and the op that sends their input, by how far back they stand. With end[-k] the
end of the row k places back,

    end = max(end[-rank_back] + gap, end[-cross_back] + delay) + duration.

When rows repeat with a period of n rows, each repetition is the same arithmetic on the n rows
before it. So a program is a prologue, a block that runs `repeats` times, and an epilogue, and a
longer schedule of the same pattern is the same program with more repeats: see `extended`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from projection.schedules.execute import check_complete, needs, start_times
from projection.schedules.order import Costs, Op, Orders

Grad = tuple[int, int]
"""A W in front of a row or after a rank's last: (microbatch, chunk)."""

Pick = Callable[[Sequence[Any]], tuple[Any, ...]]
"""Takes some entries of a list, in a fixed order."""


class Row(NamedTuple):
    """One F, B or BW, and the W's its rank runs before it."""

    rank: int
    op: Op
    grads: tuple[Grad, ...]


class Arithmetic(NamedTuple):
    """Where a row's three numbers stand in the flat list of costs.

    Index 0 is the number 0, then come F, B, W and BW by rank·vpp + chunk, the edges up, the edges
    down, and the sums of `Program.sums`.
    """

    gap: int
    delay: int
    duration: int


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive rows: predecessors as negative places, and their arithmetic by class."""

    rank_back: tuple[int, ...]
    cross_back: tuple[int, ...]
    pick: Pick
    """Each row's entry from a list by class."""

    def __len__(self) -> int:
        return len(self.rank_back)


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled schedule; `arithmetic` picks gap, delay and duration by class from the costs."""

    arithmetic: tuple[Pick, Pick, Pick]
    sums: tuple[tuple[int, ...], ...]
    """Gaps of several W's: cost indices to be summed."""
    prologue: Segment
    block: Segment
    epilogue: Segment
    repeats: int
    window: int
    """Rows before a block that it, any later block or the epilogue can still reach."""
    last_back: tuple[int, ...]
    """Place of every rank's last row, from the end."""
    last_gap: tuple[int, ...]
    """Cost index of the W's every rank runs after its last row."""
    rows: tuple[Row, ...]
    """Of the prologue, of the block once, and of the epilogue numbered as if it ran once."""
    trailing: tuple[tuple[Grad, ...], ...]
    period_microbatches: int
    extendable: bool
    """Whether more repeats are again a valid schedule."""


def compile_orders(
    orders: Orders,
    stages: tuple[tuple[int, ...], ...],
    num_microbatches: int,
    period_microbatches: int = 1,
) -> Program:
    """Compile per-rank orders; look for a block that advances `period_microbatches` microbatches.

    `stages` is the virtual stage of each [rank][chunk]. Raises ScheduleError when an op is missing,
    repeated or foreign, or when the orders deadlock.
    """
    check_complete(orders, len(stages[0]), num_microbatches)
    rows, trailing = _rows(orders, stages)
    rank_back, cross_back = _predecessors(rows, stages)
    costs = _CostIndex(len(stages), len(stages[0]))
    class_of, classes = _classes(rows, stages, costs)
    last_gap = tuple(costs.gap(rank, grads) for rank, grads in enumerate(trailing))
    per_microbatch = 2 * len(stages) * len(stages[0])
    length = per_microbatch * period_microbatches
    begin, repeats = _repetition(rows, rank_back, cross_back, length, period_microbatches)
    split = begin + length * repeats

    def segment(lo: int, hi: int) -> Segment:
        return Segment(
            tuple(-back for back in rank_back[lo:hi]),
            tuple(-back for back in cross_back[lo:hi]),
            picker(class_of[lo:hi]),
        )

    block = segment(begin, begin + length if repeats else begin)
    epilogue = segment(split, len(rows))
    last = {row.rank: len(rows) - place for place, row in enumerate(rows)}
    block_reach = _reach(block)
    tail_reach = max(_reach(epilogue), max(last.values()) - len(epilogue))
    skipped = length * max(repeats - 1, 0)
    shift = period_microbatches * max(repeats - 1, 0)
    return Program(
        arithmetic=(
            picker([c.gap for c in classes]),
            picker([c.delay for c in classes]),
            picker([c.duration for c in classes]),
        ),
        sums=tuple(costs.sums),
        prologue=segment(0, begin),
        block=block,
        epilogue=epilogue,
        repeats=repeats,
        window=max(block_reach, tail_reach, 1),
        last_back=tuple(-last[rank] for rank in range(len(stages))),
        last_gap=last_gap,
        rows=tuple(rows[: split - skipped]) + tuple(_shifted(row, -shift) for row in rows[split:]),
        trailing=tuple(tuple((m - shift, c) for m, c in grads) for grads in trailing),
        period_microbatches=period_microbatches,
        extendable=repeats > 1
        and block_reach <= length * (repeats - 1)
        and tail_reach <= length * repeats,
    )


def extended(program: Program, more_repeats: int) -> Program:
    """The program with its block run `more_repeats` times more.

    Valid because, by `extendable`, the last block and the epilogue reach back into blocks only:
    every further block stands to the blocks before it as the last one does.
    """
    if not program.extendable:
        raise ValueError("only an extendable program has further repeats")
    return replace(program, repeats=program.repeats + more_repeats)


def orders_of(program: Program, pp: int) -> Orders:
    """The per-rank orders that a program runs, with its repeats written out."""
    orders: list[list[Op]] = [[] for _ in range(pp)]

    def emit(rows: Sequence[Row], shift: int) -> None:
        for rank, op, grads in rows:
            orders[rank].extend(Op("W", m + shift, chunk) for m, chunk in grads)
            orders[rank].append(Op(op.kind, op.microbatch + shift, op.chunk))

    begin, length = len(program.prologue), len(program.block)
    emit(program.rows[:begin], 0)
    for repeat in range(program.repeats):
        emit(program.rows[begin : begin + length], repeat * program.period_microbatches)
    shift = max(program.repeats - 1, 0) * program.period_microbatches
    emit(program.rows[begin + length :], shift)
    for rank, grads in enumerate(program.trailing):
        orders[rank].extend(Op("W", m + shift, chunk) for m, chunk in grads)
    return tuple(map(tuple, orders))


def _rows(
    orders: Orders, stages: tuple[tuple[int, ...], ...]
) -> tuple[list[Row], tuple[tuple[Grad, ...], ...]]:
    """Rows by their start with unit durations, and the W's behind every rank's last row."""
    slots = len(stages) * len(stages[0])
    unit, nothing = (1.0,) * slots, (0.0,) * slots
    starts = start_times(orders, stages, Costs(unit, unit, unit, nothing, nothing))
    timed: list[tuple[float, int, Row]] = []
    trailing = []
    for rank, order in enumerate(orders):
        grads: list[Grad] = []
        for op, start in zip(order, starts[rank], strict=True):
            if op.kind == "W":
                grads.append((op.microbatch, op.chunk))
            else:
                timed.append((start, rank, Row(rank, op, tuple(grads))))
                grads = []
        trailing.append(tuple(grads))
    timed.sort(key=itemgetter(0, 1))
    return [row for _, _, row in timed], tuple(trailing)


def _predecessors(
    rows: Sequence[Row], stages: tuple[tuple[int, ...], ...]
) -> tuple[list[int], list[int]]:
    """How far back each row's two predecessors stand; the start of the run is place -1."""
    num_stages = len(stages) * len(stages[0])
    last_on_rank = [-1] * len(stages)
    place_of: dict[tuple[str, int, int], int] = {}
    rank_back, cross_back = [], []
    for place, (rank, op, _) in enumerate(rows):
        stage = stages[rank][op.chunk]
        key = needs(op, stage, num_stages)
        before = last_on_rank[rank]
        rank_back.append(place - before)
        cross_back.append(place - (before if key is None else place_of[key]))
        last_on_rank[rank] = place
        place_of["F" if op.kind == "F" else "B", stage, op.microbatch] = place
    return rank_back, cross_back


class _CostIndex:
    """Hands out indices into the flat list of costs; see Arithmetic."""

    def __init__(self, pp: int, vpp: int) -> None:
        self.vpp = vpp
        self.slots = pp * vpp
        self.sums: dict[tuple[int, ...], int] = {}

    def duration(self, rank: int, op: Op) -> int:
        """Of an F, B or BW."""
        kind = {"F": 0, "B": 1, "BW": 3}[op.kind]
        return 1 + kind * self.slots + rank * self.vpp + op.chunk

    def delay(self, op: Op, stage: int) -> int:
        """Of the edge an op's input comes over; the ends of the pipeline have none."""
        edges = self.slots - 1
        if op.kind == "F":
            return 4 * self.slots + stage if stage > 0 else 0
        return 1 + 4 * self.slots + edges + stage if stage < edges else 0

    def gap(self, rank: int, grads: Sequence[Grad]) -> int:
        """Of the W's in front of a row, entered in `sums` when there are several."""
        first = 1 + 2 * self.slots + rank * self.vpp
        parts = tuple(sorted(first + chunk for _, chunk in grads))
        if len(parts) < 2:
            return parts[0] if parts else 0
        known = self.sums.setdefault(parts, len(self.sums))
        return 1 + 4 * self.slots + 2 * (self.slots - 1) + known


def _classes(
    rows: Sequence[Row], stages: tuple[tuple[int, ...], ...], costs: _CostIndex
) -> tuple[list[int], tuple[Arithmetic, ...]]:
    """Class of every row, and each class's arithmetic, in order of appearance."""
    known: dict[Arithmetic, int] = {}
    class_of = []
    for rank, op, grads in rows:
        arithmetic = Arithmetic(
            costs.gap(rank, grads),
            costs.delay(op, stages[rank][op.chunk]),
            costs.duration(rank, op),
        )
        class_of.append(known.setdefault(arithmetic, len(known)))
    return class_of, tuple(known)


def _repetition(
    rows: Sequence[Row],
    rank_back: Sequence[int],
    cross_back: Sequence[int],
    length: int,
    period_microbatches: int,
) -> tuple[int, int]:
    """First row and number of the longest run of blocks that repeat; no repeats: (all rows, 0)."""
    if length * 2 > len(rows):
        return len(rows), 0
    same = np.ones(len(rows) - length, dtype=bool)
    for column in (rank_back, cross_back, _pattern(rows)):
        values = np.asarray(column)
        same &= values[length:] == values[:-length]
    microbatch = np.asarray([row.op.microbatch for row in rows])
    same &= microbatch[length:] - microbatch[:-length] == period_microbatches
    begin, run = _longest_run(same)
    repeats = 1 + run // length
    return (begin, repeats) if repeats > 1 else (len(rows), 0)


def _pattern(rows: Sequence[Row]) -> list[int]:
    """A number per row for what it and the W's before it are, but for its microbatch."""
    known: dict[tuple[object, ...], int] = {}
    return [
        known.setdefault(
            (
                row.rank,
                row.op.kind,
                row.op.chunk,
                *((m - row.op.microbatch, chunk) for m, chunk in row.grads),
            ),
            len(known),
        )
        for row in rows
    ]


def _longest_run(same: NDArray[np.bool_]) -> tuple[int, int]:
    """Start and length of the longest run of true."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], same, [False])).astype(np.int8)))
    if len(edges) == 0:
        return 0, 0
    lengths = edges[1::2] - edges[::2]
    longest = int(lengths.argmax())
    return int(edges[2 * longest]), int(lengths[longest])


def _reach(segment: Segment) -> int:
    """How many rows before the segment its rows look at."""
    back = [max(-a, -b) for a, b in zip(segment.rank_back, segment.cross_back, strict=True)]
    return max((far - place for place, far in enumerate(back)), default=0)


def _shifted(row: Row, shift: int) -> Row:
    return Row(
        row.rank,
        row.op._replace(microbatch=row.op.microbatch + shift),
        tuple((m + shift, chunk) for m, chunk in row.grads),
    )


def picker(classes: Sequence[int]) -> Pick:
    """`itemgetter` that answers with a tuple for any number of items."""
    if len(classes) > 1:
        return itemgetter(*classes)
    return lambda values: tuple(values[index] for index in classes)
