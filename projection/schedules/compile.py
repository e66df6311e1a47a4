"""Compiles per-rank orders to a Program, and finds the block that repeats."""

from collections.abc import Sequence
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from projection.schedules.execute import Key, check_complete, needs, start_times
from projection.schedules.order import Costs, Op, Orders
from projection.schedules.program import Grad, Pick, Program, Row, Segment

Stages = Sequence[Sequence[int]]


def compile_orders(
    orders: Orders, stages: Stages, num_microbatches: int, periods: Sequence[int] = (1,)
) -> Program:
    """Compile orders; look for a block that advances one of `periods` microbatches.

    The first period with which the program can be extended is taken, else the first. `stages` is
    the virtual stage of each [rank][chunk]. Raises ScheduleError when an op is missing, repeated or
    foreign, or when the orders deadlock.
    """
    check_complete(orders, len(stages[0]), num_microbatches)
    table = _Table(orders, stages)
    programs = [table.program(period) for period in periods]
    return next((program for program in programs if program.extendable), programs[0])


class _Table:
    """The rows of a schedule in topological order (by start with unit durations), by column."""

    def __init__(self, orders: Orders, stages: Stages) -> None:
        self.costs = _CostIndex(len(stages), len(stages[0]))
        self.rows_per_microbatch = 2 * len(stages) * len(stages[0])
        self.rows, self.trailing = _rows(orders, stages)
        self.rank_back, self.cross_back = _predecessors(self.rows, stages)
        self.columns = [np.asarray(c) for c in (self.rank_back, self.cross_back, _kinds(self.rows))]
        self.microbatch = np.asarray([row.op.microbatch for row in self.rows])
        self.gap = [self.costs.gap(rank, grads) for rank, _, grads in self.rows]
        self.delay = [self.costs.delay(op, stages[rank][op.chunk]) for rank, op, _ in self.rows]
        self.duration = [self.costs.duration(rank, op) for rank, op, _ in self.rows]
        self.last_gap = tuple(self.costs.gap(r, grads) for r, grads in enumerate(self.trailing))

    def program(self, period_microbatches: int) -> Program:
        """The rows as prologue, longest repetition of that period, and epilogue."""
        rows = self.rows
        length = self.rows_per_microbatch * period_microbatches
        begin, repeats = self.repetition(length, period_microbatches)
        middle, split = begin + length * bool(repeats), begin + length * repeats
        last = {row.rank: len(rows) - place for place, row in enumerate(rows)}
        backward = self.last_backward()
        farthest = max(*last.values(), len(rows) - backward)
        block_reach = self.reach(begin, middle)
        tail_reach = max(self.reach(split, len(rows)), farthest - (len(rows) - split))
        window = max(block_reach, tail_reach, 1)
        shift = period_microbatches * max(repeats - 1, 0)
        block = self.segment(begin, middle, window)
        return Program(
            prologue=self.segment(0, begin, 1),
            block=block,
            block_places=np.array([block.rank_at, block.cross_at], dtype=np.intp),
            epilogue=self.segment(split, len(rows), window),
            repeats=repeats,
            window=window,
            sums=tuple(self.costs.sums),
            last_at=tuple(-last[rank] for rank in range(len(last))),
            last_backward=(
                backward - len(rows),
                self.duration[backward] if rows[backward].op.kind == "BW" else 0,
            ),
            last_gap=self.last_gap,
            rows=tuple(rows[:middle]) + tuple(_earlier(row, shift) for row in rows[split:]),
            trailing=tuple(tuple((m - shift, c) for m, c in grads) for grads in self.trailing),
            period_microbatches=period_microbatches,
            extendable=repeats > 1
            and block_reach <= length * (repeats - 1)
            and tail_reach <= length * repeats,
        )

    def last_backward(self) -> int:
        """Place of the first rank's first backward pass of the last microbatch."""
        newest = int(self.microbatch.max())
        return next(
            place
            for place, (rank, op, _) in enumerate(self.rows)
            if rank == 0 and op.kind != "F" and op.microbatch == newest
        )

    def segment(self, lo: int, hi: int, first_place: int) -> Segment:
        """Rows lo to hi as a segment whose own rows start at `first_place` of the buffer."""
        places = range(first_place, first_place + hi - lo)
        return Segment(
            tuple(at - back for at, back in zip(places, self.rank_back[lo:hi], strict=True)),
            tuple(at - back for at, back in zip(places, self.cross_back[lo:hi], strict=True)),
            picker(self.gap[lo:hi]),
            picker(self.delay[lo:hi]),
            picker(self.duration[lo:hi]),
        )

    def reach(self, lo: int, hi: int) -> int:
        """How many rows before row lo the rows lo to hi read."""
        backs = map(max, self.rank_back[lo:hi], self.cross_back[lo:hi])
        return max((back - place for place, back in enumerate(backs)), default=0)

    def repetition(self, length: int, period_microbatches: int) -> tuple[int, int]:
        """First row and number of the longest run of equal blocks; without any, (all rows, 0).

        Rows are equal when they run the same chunk of a rank, with the same W's before them, from
        predecessors equally far back, for a microbatch that is `period_microbatches` later.
        """
        if length * 2 > len(self.rows):
            return len(self.rows), 0
        same = np.ones(len(self.rows) - length, dtype=bool)
        for values in self.columns:
            same &= values[length:] == values[:-length]
        same &= self.microbatch[length:] - self.microbatch[:-length] == period_microbatches
        begin, run = _longest_run(same)
        repeats = 1 + run // length
        return (begin, repeats) if repeats > 1 else (len(self.rows), 0)


class _CostIndex:
    """Hands out indices into the flat list of costs; see `program.Pick`."""

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


def _rows(orders: Orders, stages: Stages) -> tuple[list[Row], tuple[tuple[Grad, ...], ...]]:
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


def _predecessors(rows: Sequence[Row], stages: Stages) -> tuple[list[int], list[int]]:
    """How far back each row's two predecessors stand; the start of the run is place -1."""
    num_stages = len(stages) * len(stages[0])
    last_on_rank = [-1] * len(stages)
    place_of: dict[Key, int] = {}
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


def _kinds(rows: Sequence[Row]) -> list[int]:
    """A number per row for what it and the W's before it are, but for its microbatch."""
    known: dict[tuple[object, ...], int] = {}
    kinds = []
    for rank, op, grads in rows:
        before = tuple((microbatch - op.microbatch, chunk) for microbatch, chunk in grads)
        kinds.append(known.setdefault((rank, op.kind, op.chunk, before), len(known)))
    return kinds


def _longest_run(same: NDArray[np.bool_]) -> tuple[int, int]:
    """Start and length of the longest run of true."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], same, [False])).astype(np.int8)))
    if len(edges) == 0:
        return 0, 0
    lengths = edges[1::2] - edges[::2]
    longest = int(lengths.argmax())
    return int(edges[2 * longest]), int(lengths[longest])


def _earlier(row: Row, microbatches: int) -> Row:
    """The row, numbered that many microbatches lower."""
    return Row(
        row.rank,
        row.op._replace(microbatch=row.op.microbatch - microbatches),
        tuple((m - microbatches, chunk) for m, chunk in row.grads),
    )


def picker(indices: Sequence[int]) -> Pick:
    """`itemgetter` that answers with a tuple for any number of items."""
    if len(indices) > 1:
        return itemgetter(*indices)
    return lambda values: tuple(values[index] for index in indices)
