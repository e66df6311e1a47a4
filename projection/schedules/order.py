"""The nouns of a pipeline schedule: operations, their order on every rank, what they cost."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Literal, NamedTuple

from schemas.errors import ScheduleError

OpKind = Literal["F", "B", "W", "BW"]


class Op(NamedTuple):
    """One pass of one microbatch through one chunk.

    F forward; B gradient of the input; W gradient of the weights; BW both in one pass.
    """

    kind: OpKind
    microbatch: int
    chunk: int

    def __str__(self) -> str:
        return f"{self.kind}(microbatch {self.microbatch}, chunk {self.chunk})"


Orders = tuple[tuple[Op, ...], ...]
"""The ordered operations of every rank."""

Table = tuple[tuple[float, ...], ...]
"""A number for every [rank][chunk]."""


@dataclass(frozen=True, slots=True)
class Durations:
    """Milliseconds of each pass, per [rank][chunk], for one microbatch.

    A backward pass that is not split (BW) takes input_grad + weight_grad. Recomputation belongs in
    input_grad, which is the pass that waits for it.
    """

    forward: Table
    input_grad: Table
    weight_grad: Table

    @classmethod
    def uniform(cls, pp: int, vpp: int, f: float, b: float, w: float) -> "Durations":
        """Equal stages: f, b, w are those of a whole stage, of which a chunk is 1/vpp."""

        def table(whole: float) -> Table:
            return ((whole / vpp,) * vpp,) * pp

        return cls(table(f), table(b), table(w))


@dataclass(frozen=True, slots=True)
class P2P:
    """Milliseconds a tensor is in flight on each edge between neighbouring virtual stages.

    Edge e joins stages e and e + 1, so both tuples have pp·vpp - 1 entries: `forward` carries
    activations up, `backward` their gradients down. Entries of edges within one rank are ignored.
    A transfer keeps neither rank busy.
    """

    forward: tuple[float, ...]
    backward: tuple[float, ...]

    @classmethod
    def uniform(cls, num_stages: int, delay_ms: float) -> "P2P":
        """The same delay on every edge, both ways."""
        edges = (delay_ms,) * (num_stages - 1)
        return cls(edges, edges)


@dataclass(frozen=True, slots=True)
class TimedOp:
    """An operation as it ran."""

    rank: int
    op: Op
    start_ms: float
    end_ms: float


class Costs(NamedTuple):
    """Durations by rank·vpp + chunk and delays by edge, on a grid where sums are exact."""

    forward: Sequence[float]
    input_grad: Sequence[float]
    weight_grad: Sequence[float]
    up: Sequence[float]
    down: Sequence[float]

    def duration(self, kind: OpKind, slot: int) -> float:
        """Of a pass in a chunk, by rank·vpp + chunk."""
        if kind == "F":
            return self.forward[slot]
        if kind == "B":
            return self.input_grad[slot]
        if kind == "W":
            return self.weight_grad[slot]
        return self.input_grad[slot] + self.weight_grad[slot]

    def delay(self, source: int, stage: int) -> float:
        """Of a transfer between two stages; 0 within one."""
        if source == stage - 1:
            return self.up[source]
        return self.down[stage] if source == stage + 1 else 0.0


def exact_costs(
    durations: Durations,
    p2p_ms: P2P | float,
    homes: Sequence[tuple[int, int]],
    num_microbatches: int,
) -> Costs:
    """Check durations and delays, and round them to a grid on which no addition ever rounds.

    `homes` is (rank, chunk) of each stage; delays within a rank become 0. The grid is a power of
    two near 2^-50 of all work and transfers laid end to end, which no run can exceed: every time of
    a run is then an exact double, so that a shift in time is exact too. Rounding moves a duration
    by at most 2^-51 of that total. Raises ScheduleError on a wrong shape or a number that is
    negative or not finite.
    """
    pp = 1 + max(rank for rank, _ in homes)
    slots = len(homes)
    tables = []
    for name in ("forward", "input_grad", "weight_grad"):
        table: Table = getattr(durations, name)
        flat = list(chain.from_iterable(table))
        if len(table) != pp or len(flat) != slots or any(len(row) * pp != slots for row in table):
            raise ScheduleError(
                f"durations.{name} has rows of {[len(row) for row in table]} chunks; "
                f"the schedule has {pp} ranks of {slots // pp}"
            )
        tables.append(flat)
    up, down = _edges(p2p_ms, homes)
    values = [*chain.from_iterable(tables), *up, *down]
    total = sum(values) * num_microbatches
    if not (min(values) >= 0 and total < 1e300):
        raise ScheduleError("durations and P2P delays must be finite and not negative, in ms")
    # Adding and taking away 2^52 grid steps (and a half more, to stay in one binade) rounds to it.
    step = _power_of_two_above(total) * 2.0**-51
    big = step * 1.5 * 2.0**52
    exact = [(value + big) - big for value in values]
    edges = slots - 1
    return Costs(
        exact[:slots],
        exact[slots : 2 * slots],
        exact[2 * slots : 3 * slots],
        exact[3 * slots : 3 * slots + edges],
        exact[3 * slots + edges :],
    )


def _power_of_two_above(value: float) -> float:
    return math.ldexp(1.0, math.frexp(value)[1]) if value > 0 else 1.0


def _edges(
    p2p_ms: P2P | float, homes: Sequence[tuple[int, int]]
) -> tuple[list[float], list[float]]:
    """Delay per edge upwards and downwards, 0 where both of its stages share a rank."""
    crosses = [a[0] != b[0] for a, b in pairwise(homes)]
    if not isinstance(p2p_ms, P2P):
        both = [p2p_ms if cross else 0.0 for cross in crosses]
        return both, both
    if len(p2p_ms.forward) != len(crosses) or len(p2p_ms.backward) != len(crosses):
        raise ScheduleError(
            f"p2p_ms has {len(p2p_ms.forward)} forward and {len(p2p_ms.backward)} backward edges; "
            f"{len(homes)} virtual stages have {len(crosses)}"
        )
    up = [ms if cross else 0.0 for ms, cross in zip(p2p_ms.forward, crosses, strict=True)]
    down = [ms if cross else 0.0 for ms, cross in zip(p2p_ms.backward, crosses, strict=True)]
    return up, down
