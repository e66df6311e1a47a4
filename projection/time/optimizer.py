"""The optimizer step as HBM traffic over the states this GPU owns."""

from projection.kernels import KernelModels
from projection.memory.rank import RankParameters
from projection.memory.regime import BytesPerParameter, Sharding
from projection.operations import MemoryPass

FP8_CAST_READ_BYTES = 2


def step_bytes(regime: BytesPerParameter) -> float:
    """HBM bytes per owned parameter of one Adam step.

    Reads the gradient, reads and writes master weight and moments, writes the training weight: 30
    for mixed precision.
    """
    return regime.gradient + 2 * regime.optimizer + regime.weight


def optimizer_step_ms(
    rank: RankParameters,
    regime: BytesPerParameter,
    sharding: Sharding,
    fp8_copies: float,
    models: KernelModels,
) -> float:
    """The step's passes on one GPU in ms: its states, its gradient buffer, its FP8 weights.

    Owned parameters are divided by the group that shards their states. Streaming passes beside the
    step itself: the gradient norm reads the owned gradients, the gradient buffer is zeroed whole
    where it is kept whole, FP8 copies of linear weights are made (`fp8_copies` bytes each, 0 in
    bf16).
    """
    dense, experts = rank.parameters.dense, rank.parameters.routed_experts
    shared = sharding.shards_optimizer or sharding.shards_weights
    owned = dense / (sharding.dense if shared else 1) + experts / (sharding.expert if shared else 1)
    held = owned if sharding.shards_weights else dense + experts
    linear = rank.linear_dense + rank.linear_experts
    casts = (FP8_CAST_READ_BYTES + fp8_copies) * linear if fp8_copies else 0.0
    passes = MemoryPass("around_the_step", regime.gradient * (owned + held) + casts)
    return models.optimizer_ms(step_bytes(regime) * owned) + models.pass_ms(passes)
