"""Times of one microbatch through one chunk: its layers, its ends, its recomputation."""

from collections.abc import Callable
from dataclasses import dataclass

from projection.time.cost import ZERO, Cost, total, weighted
from projection.time.fsdp import NO_FSDP, FsdpTimes
from projection.time.host import Unit, host_idle
from projection.time.layers import LayerTimes
from projection.work.chunk import ChunkPlan
from projection.work.layer import LayerKind

TimesOf = Callable[[LayerKind], LayerTimes]
FsdpOf = Callable[[LayerKind], FsdpTimes]


@dataclass(frozen=True, slots=True)
class ChunkTimes:
    """One microbatch through one chunk, in ms by class. Recomputation is in `input_grad`."""

    forward: Cost
    input_grad: Cost
    weight_grad: Cost
    total: Cost
    """Everything one microbatch does here."""
    passes: tuple[float, float, float]
    """Milliseconds of the three passes, in this order."""

    @property
    def backward_ms(self) -> float:
        """Both gradients."""
        return self.passes[1] + self.passes[2]


def chunk_times(plan: ChunkPlan, times_of: TimesOf, fsdp_of: FsdpOf, *, splits: bool) -> ChunkTimes:
    """Sum the units of a chunk; each recomputed one runs its forward again before its backward.

    `splits`: weight gradients are a pass of their own.
    """
    forward, input_grad, weight_grad = [], [], []
    units: list[Unit] = []
    for entry in plan.counts:
        times, fsdp = times_of(entry.kind), fsdp_of(entry.kind)
        forward.append((entry.count, times.forward))
        input_grad.append((entry.count, times.input_grad))
        weight_grad.append((entry.count, times.weight_grad))
        if entry.recomputed:
            input_grad.append((entry.recomputed, times.full_rerun))
        if times.rerun is not ZERO:
            input_grad.append((entry.count, times.rerun))
        if fsdp is not NO_FSDP:
            forward.append((entry.count, Cost(fsdp=fsdp.forward)))
            input_grad.append((entry.count, Cost(fsdp=fsdp.backward)))
        units.append((entry.count, entry.recomputed, times, fsdp))
    idle = host_idle(units, splits=splits)
    costs = tuple(map(waiting, map(weighted, (forward, input_grad, weight_grad)), idle))
    whole, backward, weights = costs
    return ChunkTimes(
        whole, backward, weights, total(costs), (whole.total, backward.total, weights.total)
    )


def waiting(cost: Cost, host_ms: float) -> Cost:
    """`cost` with the time its GPU waits for launches."""
    return cost._replace(host=cost.host + host_ms) if host_ms else cost
