"""The form in which a schedule is evaluated: rows of one recurrence, a block of which repeats.

A row is one F, B or BW; the W's that its rank runs before it are a gap in front of it. Rows stand
in a topological order and name their two predecessors by place: the rank's previous row, and the
one that sends their input. With `end` the ends of the rows so far,

    end of a row = max(end[rank_at] + gap, end[cross_at] + delay) + duration.

A program is a prologue, a block that runs `repeats` times and an epilogue. Places count from the
start of a buffer: for the prologue, the start of the run (time 0) and then its rows; for the block
and the epilogue, the ends of the `window` rows before them and then their own. So a block reads its
window the same way every time, and a longer schedule of the same pattern is the same program with
more repeats.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from projection.schedules.order import Op, Orders

Grad = tuple[int, int]
"""A W in front of a row or after a rank's last: (microbatch, chunk)."""

Pick = Callable[[Sequence[Any]], tuple[Any, ...]]
"""Takes some entries of the flat list of costs, in a fixed order.

The list: the number 0; F, B, W and BW by rank·vpp + chunk; the edges up; the edges down; and the
sums of `Program.sums`.
"""


class Row(NamedTuple):
    """One F, B or BW, and the W's its rank runs before it."""

    rank: int
    op: Op
    grads: tuple[Grad, ...]


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive rows: the places of their predecessors, and their costs."""

    rank_at: tuple[int, ...]
    cross_at: tuple[int, ...]
    gap: Pick
    delay: Pick
    duration: Pick

    def __len__(self) -> int:
        return len(self.rank_at)


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled schedule."""

    prologue: Segment
    block: Segment
    epilogue: Segment
    block_places: NDArray[np.intp] = field(repr=False, compare=False)
    """The block's `rank_at` and `cross_at` once more, as two rows of an array."""
    repeats: int
    window: int
    """Rows before a block that it, any later block or the epilogue can still read."""
    sums: tuple[tuple[int, ...], ...]
    """Gaps of several W's: indices into the flat costs, to be summed."""
    last_at: tuple[int, ...]
    """Place of every rank's last row, from the end of the run (-1 is the last)."""
    last_backward: tuple[int, int]
    """Of the first rank's first backward pass of the last microbatch: the place of its row, from
    the end of the run, and the index into the flat costs of what it takes before weight gradients
    may be had (BW gives them as it runs, B when it has ended: 0)."""
    last_gap: tuple[int, ...]
    """Index into the flat costs of the W's every rank runs after its last row."""
    rows: tuple[Row, ...]
    """Of the prologue, the block once and the epilogue, numbered as if the block ran once."""
    trailing: tuple[tuple[Grad, ...], ...]
    """The W's every rank runs after its last row, numbered likewise."""
    period_microbatches: int
    extendable: bool
    """Whether the program with more repeats is again a schedule."""


def extended(program: Program, more_repeats: int) -> Program:
    """The program with its block run `more_repeats` times more.

    Valid because, by `extendable`, the last block and the epilogue read the ends of blocks only:
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
