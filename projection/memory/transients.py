"""Bytes that come and go within a step, one small function each.

What is derived from shapes may be replaced line by line in the cluster file
(`schemas.cluster.MemoryOverheads`).
"""

from projection.memory.overheads import GIB
from projection.memory.rank import ChunkMemory, RankParameters
from projection.memory.regime import BytesPerParameter, Sharding
from projection.memory.static import Fp8Weights, StaticMemory, shard
from schemas.architecture import Architecture
from schemas.cluster import MemoryOverheads
from schemas.workload import Precision

BF16_BYTES, FP32_BYTES = 2, 4
DEEPEP_NODE_RANKS = 8
DEEPEP_NODE_TOKENS = 256
DEEPEP_NETWORK_TOKENS = 128
"""Tokens one channel of DeepEP's ring buffers holds per peer, inside a node and between nodes
(deepseek-ai/DeepEP, `Buffer.get_dispatch_config`)."""


def fsdp_gather(
    rank: RankParameters,
    regime: BytesPerParameter,
    sharding: Sharding,
    fp8: Fp8Weights,
    gathered_units: int,
) -> float:
    """Unsharded bytes FSDP2 holds at once: the gathered units' weights and one unit's gradients.

    The unit being computed and those prefetched, FP8 copies of them, and the gradient that waits
    for its reduce-scatter.
    """
    if not sharding.shards_weights or sharding.dense * sharding.expert == 1:
        return 0.0
    units = sum(rank.unit_sizes[:gathered_units])
    linear = sum(rank.unit_linear[:gathered_units])
    largest = rank.unit_sizes[0] if rank.unit_sizes else 0.0
    return units * regime.weight + linear * fp8.copies + largest * regime.weight


def deepep_buffer(architecture: Architecture, ep: int, ranks_per_node: int, channels: int) -> float:
    """DeepEP's persistent exchange buffers: rings of token chunks, whatever the microbatch.

    Per channel and peer of the node, 256 tokens; between nodes, 128 tokens per channel and node, in
    both directions (deepseek-ai/DeepEP, `csrc/config.hpp`). A token is its hidden state in bf16,
    its top-k indices (8 B) and weights (4 B).
    """
    token = BF16_BYTES * architecture.hidden_size + 12 * architecture.moe_router_topk
    peers = min(ep, ranks_per_node, DEEPEP_NODE_RANKS)
    inside = channels * peers * DEEPEP_NODE_TOKENS * token
    nodes = ep // peers
    between = 2 * channels * nodes * DEEPEP_NETWORK_TOKENS * token if nodes > 1 else 0
    return float(inside + between)


def optimizer_step(
    rank: RankParameters, precision: Precision, regime: BytesPerParameter, sharding: Sharding
) -> float:
    """What the optimizer allocates while it steps.

    Fused Adam and SGD update in place. Gradients reduced in bf16 are first copied to fp32, for the
    shard this GPU steps (Megatron-Core, `DistributedOptimizer._copy_model_grads_to_main_grads`);
    the precision-aware optimizer reads them as they are. Muon orthogonalises one matrix at a time
    by Newton-Schulz in bf16: the matrix X[m, n] twice, X Xᵀ and its square (m ≤ n).
    """
    temporary = 0.0
    if precision.grad_reduce_in_bf16 and precision.main_grads_dtype == "fp32":
        owned = shard(rank.parameters, sharding.states)
        temporary += FP32_BYTES * owned * (regime.gradient < FP32_BYTES)
    if precision.optimizer == "muon":
        short, long = sorted(rank.largest_matrix)
        temporary += BF16_BYTES * (2.0 * short * long + 2.0 * short * short)
    return temporary


def init_bytes(static: StaticMemory, moved: float) -> float:
    """Peak while the model is built: weights and gradients with `moved` weights in two places, then
    master weights; no moments yet."""
    built = static.total - static.moments
    return max(built, static.all_weights + static.all_gradients + moved)


def layer_transients(
    settings: MemoryOverheads, chunk: ChunkMemory, brought_back: float
) -> dict[str, float]:
    """What passes through a chunk's layers in backward: experts' exchange, gradients, and what was
    recomputed."""
    lines = {"gradient_working_set": replaced(chunk.gradients, settings.gradient_working_set_gb)}
    if chunk.exchange:
        lines["expert_exchange"] = replaced(chunk.exchange, settings.expert_exchange_gb)
    if brought_back:
        lines["recompute_working_set"] = replaced(brought_back, settings.recompute_working_set_gb)
    return lines


def replaced(derived: float, given_gb: float | None) -> float:
    """`derived` bytes, or what the cluster file says instead."""
    return derived if given_gb is None else given_gb * GIB
