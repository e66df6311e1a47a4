"""Runs the block of a program many times, without running what provably repeats.

A row's end is the larger of two sums, so as long as the same one stays the larger in every row, the
ends of a cycle of blocks are those of the cycle before plus a constant per row: its rate. In the
steady state all rates are equal. In a transient they differ (the queue in front of a slower rank
grows by a little with every microbatch), and the two sums of some row approach each other: from
distance and rates follows after how many cycles one overtakes the other. Up to there cycles are
skipped by adding rates, then blocks are run again until the next rates have settled. On the grid of
`exact_costs` neither sums nor multiples of rates round, so what is skipped is exact.
"""

import struct
from collections.abc import Iterable, Sequence
from operator import eq, sub
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

PlainRow = tuple[int, int, float, float, float]
"""rank_at, cross_at, gap, delay, duration."""

MIN_ROWS_BETWEEN_COMPARISONS = 64
"""Looking for a repetition after every small block would cost as much as running it."""
MIN_ROWS_SKIPPED = 256
"""Fewer are run faster than skipped."""
MAX_CYCLE = 32
"""Longest cycle that is looked for, in comparisons. (With slow P2P a cycle is the round trip of as
many microbatches as are in flight.)"""
MAX_ROWS_UNCOMPARED = 1024
"""Run, at most, without another look after looks that led to nothing."""
NEVER = 2**63 - 1


def advance(ends: list[float], rows: Iterable[PlainRow]) -> None:
    """Append the end of every row: the recurrence of the module `program`."""
    append = ends.append
    for rank_at, cross_at, gap, delay, duration in rows:
        free = ends[rank_at] + gap
        ready = ends[cross_at] + delay
        append((free if free > ready else ready) + duration)


def run_all(ends: list[float], block: Sequence[PlainRow], times: int, window: int) -> list[float]:
    """The last `window` ends after the block has run `times` times behind the given ones."""
    for _ in range(times):
        buffer = ends[-window:]
        advance(buffer, block)
        ends = buffer
    return ends[-window:]


def run_repeats(
    ends: list[float],
    block: Sequence[PlainRow],
    places: NDArray[np.intp],
    repeats: int,
    window: int,
) -> tuple[list[float], bool]:
    """As `run_all`, skipping what provably repeats; and whether anything was skipped.

    `ends` are the `window` ends before the first block, `places` its `Program.block_places`.
    """
    stride = -(-max(MIN_ROWS_BETWEEN_COMPARISONS, window) // len(block))
    steps, rest = divmod(repeats, stride)
    run = _Run(ends, block, places, stride, window)
    while run.done < steps:
        run.step()
        for cycle in run.cycles(steps - run.done):
            if run.skip(cycle, (steps - run.done) // cycle):
                break
    return run_all(run.ends[-window:], block, rest, window), run.skipped


class _Rates(NamedTuple):
    """How the rows of the last cycle, and the window before it, move from cycle to cycle."""

    now: NDArray[np.float64]
    per_cycle: NDArray[np.float64]
    cycles: int
    """For how many more cycles every row is known to move on like this."""


class _Run:
    """The ends of the rows so far, compared every `stride` blocks (a step)."""

    def __init__(
        self,
        ends: list[float],
        block: Sequence[PlainRow],
        places: NDArray[np.intp],
        stride: int,
        window: int,
    ) -> None:
        self.ends = ends
        self.block, self.places = block, places
        self.stride, self.window = stride, window
        self.rows_per_step = stride * len(block)
        self.tails = [ends]
        """The last `window` ends after every step since the last skip, and before the first."""
        self.done = 0
        self.skipped = False
        self._costs: NDArray[np.float64] | None = None
        self._next_look, self._patience = 0, 1

    def step(self) -> None:
        """Run the next blocks."""
        window = self.window
        for _ in range(self.stride):
            buffer = self.ends[-window:]
            advance(buffer, self.block)
            self.ends += buffer[window:]
        self.tails.append(self.ends[-window:])
        self.done += 1

    def cycles(self, left: int) -> Iterable[int]:
        """Cycles, in steps, after which the last rows moved on by the same twice, row by row."""
        tails = self.tails
        if self.done < self._next_look:
            return
        now = tails[-1]
        for cycle in range(1, min((len(tails) - 1) // 2, MAX_CYCLE, left) + 1):
            before, earlier = tails[-1 - cycle], tails[-1 - 2 * cycle]
            if now[-1] - before[-1] == before[-1] - earlier[-1] and all(
                map(eq, map(sub, now, before), map(sub, before, earlier))
            ):
                yield cycle

    def skip(self, cycle: int, left: int) -> bool:
        """Skip at most `left` cycles, as long as every row is known to move on at its rate."""
        now, per_cycle, cycles = self._rates(cycle)
        cycles = min(cycles, left)
        if cycles * cycle * self.rows_per_step < MIN_ROWS_SKIPPED:
            self._next_look = self.done + self._patience
            longest = max(MAX_ROWS_UNCOMPARED // self.rows_per_step, 1)
            self._patience = min(2 * self._patience, longest)
            return False
        last = now + cycles * per_cycle
        before = last - per_cycle
        self.ends = [*before.tolist(), *last[self.window :].tolist()]
        starts = range(0, (2 * cycle + 1) * self.rows_per_step, self.rows_per_step)
        self.tails = [self.ends[start : start + self.window] for start in starts]
        self.done += cycles * cycle
        self.skipped, self._patience = True, 1
        return True

    def _rates(self, cycle: int) -> _Rates:
        """How far the last cycle was from the one before, and for how many more that holds.

        The window's rates are those of the last rows of the cycle (`cycles` compared them). Let the
        larger sum of a row be a, the smaller b, and their rates p and q. When the row's own rate is
        p (the larger of p and q where a = b), its next end is again its last plus its rate, as long
        as the rows it reads follow theirs, and for n cycles as long as a + n p >= b + n q.
        """
        rows = cycle * self.rows_per_step
        span = self.window + rows
        # A third of the time np.array takes for a list.
        ends = np.frombuffer(struct.pack(f"{span + rows}d", *self.ends[-span - rows :]))
        now = ends[rows:]
        rate = now - ends[:span]
        (rank_at, cross_at), (gap, delay) = self._last_cycle(rows)
        ahead = (now.take(rank_at) + gap) - (now.take(cross_at) + delay)
        along, across = rate.take(rank_at), rate.take(cross_at)
        gained = across - along
        leads = (ahead > 0) | ((ahead == 0) & (gained <= 0))
        if (rate[self.window :] != np.where(leads, along, across)).any():
            return _Rates(now, rate, 0)
        closing = ((ahead > 0) & (gained > 0)) | ((ahead < 0) & (gained < 0))
        if not closing.any():
            return _Rates(now, rate, NEVER)
        return _Rates(now, rate, int(np.floor_divide(ahead[closing], gained[closing]).min()))

    def _last_cycle(self, rows: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """(rank_at, cross_at) and (gap, delay) of that many rows behind one window."""
        if self._costs is None:
            _, _, gap, delay, _ = zip(*self.block, strict=True)
            self._costs = np.array((gap, delay))
        repeats = rows // len(self.block)
        if repeats == 1:
            return self.places, self._costs
        shifts = len(self.block) * np.arange(repeats)
        moved = (self.places[:, None, :] + shifts[None, :, None]).reshape(2, rows)
        return moved, np.tile(self._costs, repeats)
