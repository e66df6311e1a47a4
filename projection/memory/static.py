"""Bytes of weights, gradients and optimizer states on one GPU of a pipeline rank."""

from dataclasses import dataclass

from projection.memory.rank import RankParameters
from projection.memory.regime import BytesPerParameter, Sharding
from projection.operations import Parameters


@dataclass(frozen=True, slots=True)
class StaticMemory:
    """Bytes that live from one step to the next; the vocabulary's tables apart from the layers."""

    weights: float
    gradients: float
    optimizer: float
    vocabulary_weights: float
    vocabulary_gradients: float
    vocabulary_optimizer: float
    fp8_weights: float
    moments: float
    """Of the optimizer's, what appears only at the end of the first step."""

    @property
    def all_weights(self) -> float:
        """Weights of layers and vocabulary, without FP8 copies."""
        return self.weights + self.vocabulary_weights

    @property
    def all_gradients(self) -> float:
        """Gradients of layers and vocabulary."""
        return self.gradients + self.vocabulary_gradients

    @property
    def all_optimizer(self) -> float:
        """Optimizer states of layers and vocabulary."""
        return self.optimizer + self.vocabulary_optimizer

    @property
    def total(self) -> float:
        """All of it, in the steady state."""
        return self.all_weights + self.all_gradients + self.all_optimizer + self.fp8_weights


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
    held, states = sharding.held, sharding.states
    linear = rank.linear_dense / held[0] + rank.linear_experts / held[1]
    weights = regime.weight * shard(rank.layers, held)
    if fp8.primary:
        weights -= regime.weight * linear
        copies = fp8.copies * linear
    else:
        copies = 0.0 if sharding.shards_weights else fp8.copies * linear
    layers, vocabulary = shard(rank.layers, states), shard(rank.vocabulary, states)
    return StaticMemory(
        weights=weights,
        gradients=regime.gradient * shard(rank.layers, held),
        optimizer=regime.optimizer * layers,
        vocabulary_weights=regime.weight * shard(rank.vocabulary, held),
        vocabulary_gradients=regime.gradient * shard(rank.vocabulary, held),
        vocabulary_optimizer=regime.optimizer * vocabulary,
        fp8_weights=copies,
        moments=(regime.first_moment + regime.second_moment) * (layers + vocabulary),
    )


def shard(parameters: Parameters, divisors: tuple[int, int]) -> float:
    """Parameters one GPU keeps of dense ones over the first divisor and experts over the second."""
    return parameters.dense / divisors[0] + parameters.routed_experts / divisors[1]
