"""FSDP2: gather a unit's weights before its forward and backward, scatter its gradients after.

Overlap model and ceilings: Primus Projection (arXiv 2610.19423, appendix B.4). A collective hides
behind the adjacent unit's compute, as far as that lasts, and never more than its ceiling. Weights
are resharded after forward (PyTorch's default), so backward gathers them again whether or not
activations are recomputed.
"""

from dataclasses import dataclass
from typing import Literal

from projection.kernels import KernelModels
from projection.operations import Collective, GroupName, Parameters
from projection.time.cost import Cost
from projection.time.layers import LayerTimes
from projection.work.layer import LayerKind
from projection.work.linear import BF16_BYTES

FORWARD_GATHER_CEILING = 0.95
BACKWARD_GATHER_CEILING = 0.93
SCATTER_CEILING = 0.92


@dataclass(frozen=True, slots=True)
class FsdpTimes:
    """Exposed collectives of one unit for one microbatch, in ms."""

    forward: float = 0.0
    gather_backward: float = 0.0
    scatter: float = 0.0
    gather_algorithm: str = ""
    scatter_algorithm: str = ""

    @property
    def backward(self) -> float:
        """Exposed in backward: the second gather and the scatter."""
        return self.gather_backward + self.scatter


NO_FSDP = FsdpTimes()


def exposed(communication: float, compute: float, ceiling: float) -> float:
    """communication · (1 - ceiling · min(1, compute / communication)), in ms."""
    if communication <= 0:
        return 0.0
    return communication * (1 - ceiling * min(1.0, compute / communication))


def fsdp_times(
    kind: LayerKind, parameters: Parameters, times: LayerTimes, models: KernelModels
) -> FsdpTimes:
    """What FSDP2 exposes around one unit of `kind`.

    The embedding is first in forward and last in backward: nothing hides its collectives. In
    backward the gather and the scatter share the links, so the scatter hides in what compute the
    gather has left.
    """
    gather, gather_algorithm = _collective("allgather", parameters, models)
    scatter, scatter_algorithm = _collective("reduce_scatter", parameters, models)
    if kind.block == "embedding":
        return FsdpTimes(gather, 0.0, scatter, gather_algorithm, scatter_algorithm)
    backward_ms = _window(times.input_grad) + _window(times.weight_grad)
    gather_backward = exposed(gather, backward_ms, BACKWARD_GATHER_CEILING)
    window = max(0.0, backward_ms - (gather - gather_backward))
    return FsdpTimes(
        forward=exposed(gather, _window(times.forward), FORWARD_GATHER_CEILING),
        gather_backward=gather_backward,
        scatter=exposed(scatter, window, SCATTER_CEILING),
        gather_algorithm=gather_algorithm,
        scatter_algorithm=scatter_algorithm,
    )


def _window(cost: Cost) -> float:
    """What of a pass a collective hides behind, in ms: kernels, and waiting for the host; no other
    exposed collective, which wants the links for itself."""
    return cost.compute + cost.host


def _collective(
    kind: Literal["allgather", "reduce_scatter"], parameters: Parameters, models: KernelModels
) -> tuple[float, str]:
    """Gather or scatter of a unit's weights in bf16: dense ones over dp, experts over edp.

    Milliseconds, and the algorithms that won, dense weights' first.
    """
    parts: tuple[tuple[float, GroupName], ...] = (
        (parameters.dense, "dp"),
        (parameters.routed_experts, "edp"),
    )
    priced = [
        models.collective(Collective(f"fsdp_{kind}", kind, BF16_BYTES * count, group))
        for count, group in parts
        if count and models.placement.group(group).size > 1
    ]
    names = ", ".join(f"{one.algorithm}/{one.protocol}" for one in priced)
    return sum(one.time_ms for one in priced), names
