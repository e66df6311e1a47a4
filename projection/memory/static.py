"""Bytes of weights, gradients and optimizer states on one GPU of a pipeline rank."""

from dataclasses import dataclass

from projection.memory.rank import RankParameters
from projection.memory.regime import BytesPerParameter, Sharding


@dataclass(frozen=True, slots=True)
class StaticMemory:
    """Bytes that live from one step to the next."""

    weights: float
    gradients: float
    optimizer: float
    fp8_weights: float
    first_step: float
    """Of the optimizer's, what appears only at the end of the first step: the moments."""

    @property
    def total(self) -> float:
        """All of it, in the steady state."""
        return self.weights + self.gradients + self.optimizer + self.fp8_weights


@dataclass(frozen=True, slots=True)
class Fp8Weights:
    """What FP8 training keeps of a linear weight, in bytes per weight."""

    copies: float = 0.0
    """FP8 copy, and its transpose where one is cached."""
    primary: bool = False
    """Whether FP8 is the primary copy: no bf16 weight is kept then."""


def static_memory(
    rank: RankParameters, regime: BytesPerParameter, sharding: Sharding, fp8: Fp8Weights
) -> StaticMemory:
    """Weights, gradients, states and cached FP8 copies of one rank.

    Distributed optimizer: states ÷ N, N the data-parallel group of the parameter's kind. FSDP2:
    everything ÷ N; its FP8 copies are made of the gathered weights, so they are not cached.
    """
    dense, experts = rank.parameters.dense, rank.parameters.routed_experts
    share = (sharding.dense, sharding.expert)
    states = share if sharding.shards_optimizer or sharding.shards_weights else (1, 1)
    held = share if sharding.shards_weights else (1, 1)

    def over(divisors: tuple[int, int], bytes_each: float) -> float:
        return bytes_each * (dense / divisors[0] + experts / divisors[1])

    linear = rank.linear_dense / held[0] + rank.linear_experts / held[1]
    weights = over(held, regime.weight)
    if fp8.primary:
        weights -= regime.weight * linear
        copies = fp8.copies * linear
    else:
        copies = 0.0 if sharding.shards_weights else fp8.copies * linear
    return StaticMemory(
        weights=weights,
        gradients=over(held, regime.gradient),
        optimizer=over(states, regime.optimizer),
        fp8_weights=copies,
        first_step=over(states, regime.first_moment + regime.second_moment),
    )


def fsdp_gather(
    rank: RankParameters, regime: BytesPerParameter, sharding: Sharding, fp8: Fp8Weights
) -> float:
    """Unsharded bytes FSDP2 holds at once: two units' weights and one unit's gradients.

    The unit being computed and the one prefetched (PyTorch FSDP2's implicit prefetch keeps two
    all-gathers alive), FP8 copies of both, and the gradient waiting for its reduce-scatter.
    """
    if not sharding.shards_weights or sharding.dense * sharding.expert == 1:
        return 0.0
    gathered = sum(rank.largest_units) * regime.weight + rank.largest_linear * fp8.copies
    return gathered + rank.largest_units[0] * regime.weight
