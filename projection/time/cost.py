"""Milliseconds by operator class: what every time is a sum of."""

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

    @property
    def compute(self) -> float:
        """Kernels that are not collectives."""
        return self.gemm + self.attention + self.elementwise + self.recompute

    @property
    def exposed(self) -> float:
        """Collectives no compute hides."""
        return self.tensor_parallel + self.context_parallel + self.expert_parallel + self.fsdp

    @property
    def total(self) -> float:
        """All of it."""
        return self.compute + self.exposed

    def plus(self, other: "Cost") -> "Cost":
        """Class-wise sum."""
        return Cost(*[a + b for a, b in zip(self, other, strict=True)])

    def times(self, factor: float) -> "Cost":
        """Every class times `factor`."""
        return Cost(*[a * factor for a in self])

    def as_recompute(self) -> "Cost":
        """The same work done again in backward: its compute is recomputation."""
        return Cost(
            recompute=self.compute,
            tensor_parallel=self.tensor_parallel,
            context_parallel=self.context_parallel,
            expert_parallel=self.expert_parallel,
            fsdp=self.fsdp,
        )


ZERO = Cost()


def total(costs: "list[Cost]") -> Cost:
    """Class-wise sum of `costs`."""
    return Cost(*map(sum, zip(*costs, strict=True))) if costs else ZERO
