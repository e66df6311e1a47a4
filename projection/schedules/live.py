"""What is alive on a rank, counted: a property of the order, whatever the durations."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from projection.schedules.order import Op
from schemas.errors import ScheduleError


class LiveState(NamedTuple):
    """What one rank holds at one moment, counted per chunk in microbatches."""

    whole: tuple[int, ...]
    """Between the start of F and the end of B or BW."""
    for_weights: tuple[int, ...]
    """Between the end of B and the end of W: what the weight gradient still needs."""


def live_states(order: Sequence[Op], vpp: int) -> tuple[LiveState, ...]:
    """The combinations of what is alive on a rank that no other moment dominates.

    A moment dominates another when no count is smaller; so whatever the bytes of each count, the
    high-water mark is in one of these states. Raises ScheduleError when an op frees what its rank
    does not hold.
    """
    whole, for_weights = [0] * vpp, [0] * vpp
    seen: dict[tuple[int, ...], None] = {}
    for op in order:
        c = op.chunk
        if op.kind == "F":
            whole[c] += 1
        elif op.kind == "W":
            for_weights[c] -= 1
        else:
            whole[c] -= 1
            for_weights[c] += op.kind == "B"
        if whole[c] < 0 or for_weights[c] < 0:
            raise ScheduleError(f"{op} frees an activation that its rank does not hold")
        seen[(*whole, *for_weights)] = None
    return _most(seen, vpp)


def most_demanding(alternatives: Iterable[Iterable[LiveState]]) -> tuple[LiveState, ...]:
    """The states of several orders of a rank that no state of any of them dominates."""
    states = dict.fromkeys(chain.from_iterable(alternatives))
    vpp = len(next(iter(states)).whole)
    return _most(((*whole, *for_weights) for whole, for_weights in states), vpp)


def peak_in_flight(states: Iterable[LiveState], vpp: int) -> float:
    """Most microbatches alive at once in units of a whole stage, each until its W (or BW)."""
    return max(sum(state.whole) + sum(state.for_weights) for state in states) / vpp


def _most(states: Iterable[tuple[int, ...]], vpp: int) -> tuple[LiveState, ...]:
    """The states, written as one row, to which no other is at least equal in every count."""
    kept: list[tuple[int, ...]] = []
    for state in sorted(states, key=lambda counts: (-sum(counts), counts)):
        if not any(all(a >= b for a, b in zip(other, state, strict=True)) for other in kept):
            kept.append(state)
    return tuple(LiveState(state[:vpp], state[vpp:]) for state in kept)
