"""Milliseconds by operator class: what every time is a sum of."""

from collections.abc import Iterable, Sequence
from operator import mul
from typing import NamedTuple


class Cost(NamedTuple):
    """Compute by operator class, and exposed communication by who causes it, in ms."""

    gemm: float = 0.0
    attention: float = 0.0
    elementwise: float = 0.0
    recompute: float = 0.0
    tensor_parallel: float = 0.0
    context_parallel: float = 0.0
    expert_parallel: float = 0.0
    fsdp: float = 0.0
    host: float = 0.0
    """The GPU waits for the host to launch kernels."""

    @property
    def compute(self) -> float:
        """Kernels that are not collectives."""
        return self.gemm + self.attention + self.elementwise + self.recompute

    @property
    def total(self) -> float:
        """All of it, exposed collectives included."""
        return sum(self)

    def times(self, factor: float) -> "Cost":
        """Every class times `factor`."""
        return Cost._make([a * factor for a in self])

    def as_recompute(self) -> "Cost":
        """The same work done again in backward: its compute is recomputation."""
        return Cost(
            recompute=self.compute,
            tensor_parallel=self.tensor_parallel,
            context_parallel=self.context_parallel,
            expert_parallel=self.expert_parallel,
            fsdp=self.fsdp,
            host=self.host,
        )


ZERO = Cost()


def total(costs: Iterable[Cost]) -> Cost:
    """Class-wise sum of `costs`, of which there is at least one."""
    return Cost._make(map(sum, zip(*costs, strict=True)))


def weighted(parts: Sequence[tuple[float, Cost]]) -> Cost:
    """Class-wise sum of count · cost; of none, nothing."""
    if not parts:
        return ZERO
    if len(parts) == 1:
        count, cost = parts[0]
        return cost if count == 1 else cost.times(count)
    counts = [count for count, _ in parts]
    classes = zip(*[cost for _, cost in parts], strict=True)
    return Cost._make([sum(map(mul, counts, values)) for values in classes])
