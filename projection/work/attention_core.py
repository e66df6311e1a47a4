"""Softmax(QKᵀ)V of one layer: flash or unfused, and what context parallelism adds to it."""

from dataclasses import dataclass

from projection.operations import (
    AttentionCore,
    Collective,
    Gemm,
    MemoryPass,
    ModuleWork,
    Operation,
    SavedTensor,
)
from projection.work.linear import BF16_BYTES
from projection.work.shape import WorkShape
from schemas.architecture import Architecture


@dataclass(frozen=True, slots=True)
class Heads:
    """Heads on one GPU: queries divide by tp, a KV group is never split (it is replicated)."""

    query: int
    key_value: int
    d_qk: int
    d_v: int

    @property
    def query_width(self) -> int:
        """Elements of one token's queries."""
        return self.query * self.d_qk

    @property
    def key_value_width(self) -> int:
        """Elements of one token's keys and values."""
        return self.key_value * (self.d_qk + self.d_v)

    @property
    def output_width(self) -> int:
        """Elements of one token's attention output."""
        return self.query * self.d_v


def heads_of(architecture: Architecture, shape: WorkShape) -> Heads:
    """Heads of one layer on one GPU. Latent attention expands to as many KV heads as queries."""
    query = -(-architecture.num_attention_heads // shape.tp)
    groups = query if architecture.attention == "mla" else architecture.num_query_groups
    key_value = query if architecture.attention == "mla" else max(1, groups // shape.tp)
    return Heads(query, key_value, architecture.qk_dim, architecture.v_dim)


def attention_core(architecture: Architecture, shape: WorkShape, window: int | None) -> ModuleWork:
    """The attention core of one microbatch, with context-parallel collectives.

    Saved by flash attention: Q, K, V and 4 B of log-sum-exp per query; the output is saved once, as
    the projection's input, unless that input is kept as its FP8 copy. Unfused attention saves its
    [seq, seq] scores instead (Korthikanti et al. 2022, eq. 1: 5 a s² b with dropout, 2 without).
    """
    heads = heads_of(architecture, shape)
    forward, backward = _core_operations(heads, shape, window)
    to_forward, to_backward = _context_parallel(heads, shape)
    return ModuleWork(
        "core_attention",
        forward=to_forward + forward,
        input_grad=to_backward + backward,
        weight_grad=(),
        saved=_saved(heads, shape),
    )


def _saved(heads: Heads, shape: WorkShape) -> tuple[SavedTensor, ...]:
    """What the core keeps for its backward."""
    tokens = shape.tokens
    qkv = SavedTensor(
        "query_key_value", float(BF16_BYTES * tokens * (heads.query_width + heads.key_value_width))
    )
    if shape.flash_attention:
        saved = [qkv, SavedTensor("softmax_lse", 4.0 * tokens * heads.query)]
    else:
        scores = float(shape.micro_batch * heads.query) * _query_length(shape) * shape.seq_length
        per_score = BF16_BYTES + (1 + BF16_BYTES if shape.attention_dropout else 0)
        saved = [qkv, SavedTensor("attention_scores", per_score * scores)]
    if shape.fp8:
        saved.append(SavedTensor("attention_out", float(BF16_BYTES * tokens * heads.output_width)))
    return tuple(saved)


def _query_length(shape: WorkShape) -> int:
    """Query positions of one sequence on one GPU."""
    return shape.seq_length // shape.cp


def _core_operations(
    heads: Heads, shape: WorkShape, window: int | None
) -> tuple[tuple[Operation, ...], tuple[Operation, ...]]:
    """The core's forward and backward kernels.

    Context parallelism divides the work by cp: ring and gather keep all heads and 1/cp of the
    queries (zigzag order, so the causal triangle is shared evenly); all-to-all keeps all positions
    and 1/cp of the heads.
    """
    if not shape.flash_attention:
        return _unfused(heads, shape)
    by_heads = shape.cp if shape.cp_comm == "a2a" else 1
    core = AttentionCore(
        "core_attention",
        batch=shape.micro_batch,
        heads=-(-heads.query // by_heads),
        kv_heads=max(1, heads.key_value // by_heads),
        seq_q=shape.seq_length // (1 if by_heads > 1 else shape.cp),
        seq_kv=shape.seq_length,
        d_qk=heads.d_qk,
        d_v=heads.d_v,
        causal=True,
        window=window,
    )
    return (core,), (core,)


def _unfused(heads: Heads, shape: WorkShape) -> tuple[tuple[Operation, ...], tuple[Operation, ...]]:
    """Unfused attention: two batched GEMMs and a softmax pass; backward four and a pass.

    No causal saving: the whole [queries, keys] rectangle is computed.
    """
    batch, rows, keys = shape.micro_batch * heads.query, _query_length(shape), shape.seq_length
    scores = float(batch) * rows * keys
    softmax_bytes = scores * (
        2 * BF16_BYTES + (1 + 2 * BF16_BYTES if shape.attention_dropout else 0)
    )
    forward = (
        Gemm("attention_scores", rows, keys, heads.d_qk, batch),
        MemoryPass("softmax", softmax_bytes, 2 if shape.attention_dropout else 1),
        Gemm("attention_values", rows, heads.d_v, keys, batch),
    )
    backward = (
        Gemm("attention_values_dgrad", rows, keys, heads.d_v, batch),
        Gemm("attention_values_wgrad", keys, heads.d_v, rows, batch),
        MemoryPass("softmax_backward", softmax_bytes + BF16_BYTES * scores),
        Gemm("attention_scores_dgrad", rows, heads.d_qk, keys, batch),
        Gemm("attention_scores_wgrad", keys, heads.d_qk, rows, batch),
    )
    return forward, backward


def _context_parallel(
    heads: Heads, shape: WorkShape
) -> tuple[tuple[Operation, ...], tuple[Operation, ...]]:
    """Collectives of context parallelism, forward and backward.

    p2p: a ring of cp - 1 steps that send K and V behind the attention of the previous block;
    backward sends K, V and their gradients. a2a: heads against positions, on Q, K, V and on the
    output. allgather: K and V are gathered, their gradients reduce-scattered.
    """
    if shape.cp == 1:
        return (), ()
    tokens, kv = shape.tokens, heads.key_value_width
    if shape.cp_comm == "p2p":
        step = Collective("cp_ring", "sendrecv", float(BF16_BYTES * tokens * kv), "cp", True)
        back = Collective("cp_ring", "sendrecv", float(2 * BF16_BYTES * tokens * kv), "cp", True)
        return (step,) * (shape.cp - 1), (back,) * (shape.cp - 1)
    if shape.cp_comm == "allgather":
        whole = float(BF16_BYTES * tokens * shape.cp * kv)
        gather = Collective("cp_allgather", "allgather", whole, "cp")
        scatter = Collective("cp_reduce_scatter", "reduce_scatter", whole, "cp")
        return (gather,), (gather, scatter)
    qkv = Collective(
        "cp_alltoall", "alltoall", float(BF16_BYTES * tokens * (heads.query_width + kv)), "cp"
    )
    out = Collective(
        "cp_alltoall", "alltoall", float(BF16_BYTES * tokens * heads.output_width), "cp"
    )
    return (qkv, out), (out, qkv)
