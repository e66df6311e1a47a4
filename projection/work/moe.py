"""A mixture-of-experts block: router, dispatch, grouped experts, combine, shared expert."""

from dataclasses import dataclass

from projection import parameters
from projection.operations import (
    Collective,
    Forwarding,
    Gemm,
    GroupName,
    MemoryPass,
    ModuleWork,
    Operation,
    SavedTensor,
    distinct_ranks,
)
from projection.work.linear import (
    BF16_BYTES,
    TensorParallel,
    accumulation_bytes,
    enter_parallel,
    leave_parallel,
)
from projection.work.mlp import FeedForward, feed_forward, mlp_input
from projection.work.shape import WorkShape
from schemas.architecture import Architecture

FP32_BYTES = 4

ROUTER_KERNELS = (14, 3)
"""Score function, top-k, two scatters, auxiliary loss and its sums, casts; fused (Megatron-Core
`moe_utils.topk_routing_with_score_function`, Transformer Engine's fused router): a kernel each for
scores with top-k, for the loss and for its sums."""
PERMUTE_KERNELS = (6, 2)
"""Transpose, indices by two masked selections, gathers of tokens and of weights; fused: the row map
and the copy (Megatron-Core `moe_utils.permute`)."""
SORT_KERNELS = (4, 1)
"""Split, two concatenations and an index of chunks; fused: one copy."""
PREPROCESS_KERNELS = 8
"""Counts per expert and rank and their all-gathered sums, before an all-to-all."""
SYNC_POINTS = 4
"""Router, permutation, dispatcher and grouped MLP each wait for a count of the GPU (Primus RFC
"SyncFree MoE", AMD-AGI/Primus issue 203)."""
SYNCS_REMOVED = (0, 2, 3, 4)
"""By sync-free stage: none; router and permutation; router, DeepEP and grouped MLP; all."""


@dataclass(frozen=True, slots=True)
class Routing:
    """Tokens of one microbatch around the experts of one GPU."""

    sent_tokens: int
    """Tokens this GPU routes: its residual tokens (expert ranks split what tp ranks share)."""
    sent_rows: int
    """Their copies, top-k each."""
    local_experts: int
    rows: int
    """Copies this GPU's experts process, at the busiest rank."""
    unique_rows: int
    """Tokens received when a token travels once per rank, however many experts it meets there."""
    allocated_rows: int
    """Rows the framework allocates for the experts: more than `rows` when it may not ask."""

    @property
    def rows_per_expert(self) -> int:
        """Mean rows of a local expert."""
        return -(-self.rows // self.local_experts)


def routing(architecture: Architecture, shape: WorkShape) -> Routing:
    """Where the copies of a microbatch's tokens go.

    The etp ranks of an expert see each other's tokens, so a GPU's experts process etp times the
    copies it sends, each at 1/etp of the width. Sync-free stage 3 allocates the worst case,
    tokens · etp · ep · top-k rows, because the host never learns the count (Primus,
    `permute_max_token_num`).
    """
    experts, topk = int(architecture.num_experts or 1), architecture.moe_router_topk
    tokens = shape.residual_tokens
    rows = -(-int(tokens * topk * shape.etp * shape.routed_load * 1024) // 1024)
    unique = tokens * shape.etp * distinct_ranks(experts, topk, shape.ep) * shape.routed_load
    worst = tokens * shape.etp * shape.ep * topk
    return Routing(
        sent_tokens=tokens,
        sent_rows=tokens * topk,
        local_experts=max(1, experts // shape.ep),
        rows=rows,
        unique_rows=min(rows, int(unique)),
        allocated_rows=max(rows, worst) if shape.sync_free_stage >= 3 else rows,
    )


def moe_block(architecture: Architecture, shape: WorkShape) -> tuple[ModuleWork, ...]:
    """Modules of one MoE block, without its input norm."""
    routed = routing(architecture, shape)
    return (
        _router(architecture, shape, routed),
        _dispatch(architecture, shape, routed),
        *_experts(architecture, shape, routed),
        _combine(architecture, shape, routed),
        *_shared_expert(architecture, shape),
    )


def _router(architecture: Architecture, shape: WorkShape, routed: Routing) -> ModuleWork:
    """The router's GEMM, softmax and top-k; keeps the block's input and its own fp32 scores.

    The input is kept in bf16 whatever the experts run in: the router is not quantised.
    """
    experts, hidden = int(architecture.num_experts or 1), architecture.hidden_size
    tokens = routed.sent_tokens
    scores = float(FP32_BYTES * tokens * experts)
    launches = ROUTER_KERNELS[_fused(shape)]
    block_input = SavedTensor("mlp_input", float(BF16_BYTES * tokens * hidden))
    return ModuleWork(
        "router",
        forward=(
            Gemm("router", tokens, experts, hidden),
            MemoryPass("router_topk", 3 * scores, launches),
        ),
        input_grad=(
            MemoryPass("router_topk_backward", 3 * scores, launches),
            Gemm("router_dgrad", tokens, hidden, experts, layout="NN"),
        ),
        weight_grad=(
            Gemm("router_wgrad", experts, hidden, tokens, layout="NT"),
            MemoryPass("router_grad_accumulate", accumulation_bytes(shape) * experts * hidden),
        ),
        saved=(block_input, SavedTensor("router_scores", 2 * scores)),
        parameters=parameters.router(architecture),
    )


def _dispatch(architecture: Architecture, shape: WorkShape, routed: Routing) -> ModuleWork:
    """Permutation and the all-to-all that brings tokens to their experts.

    Keeps the permuted tokens, which are the experts' input (one copy per routed row: the weight
    gradient needs it), and the row map. Tokens travel in bf16: quantisation is the expert GEMM's.
    """
    hidden = architecture.hidden_size
    moves = _permutation(shape, routed, hidden, "dispatch")
    counts = _preprocessing(architecture, shape)
    sends = _exchange(architecture, shape, routed, "dispatch")
    back = _exchange(architecture, shape, routed, "combine")
    kept = float(shape.saved_linear_bytes * routed.allocated_rows * hidden)
    return ModuleWork(
        "dispatch",
        forward=(*counts, *moves, *sends),
        input_grad=(*back, *moves),
        weight_grad=(),
        saved=(
            SavedTensor("expert_input", kept),
            SavedTensor("row_map", float(FP32_BYTES * routed.sent_rows)),
        ),
    )


def _combine(architecture: Architecture, shape: WorkShape, routed: Routing) -> ModuleWork:
    """The all-to-all back and the weighted sum of a token's copies.

    Router weights are applied inside the experts' activation, so the copies themselves are not
    kept (Megatron-Core since 0.12); only the weights are.
    """
    moves = _permutation(shape, routed, architecture.hidden_size, "combine")
    return ModuleWork(
        "combine",
        forward=(*_exchange(architecture, shape, routed, "combine"), *moves),
        input_grad=(*moves, *_exchange(architecture, shape, routed, "dispatch")),
        weight_grad=(),
        saved=(SavedTensor("router_weights", float(FP32_BYTES * routed.allocated_rows)),),
    )


def _permutation(
    shape: WorkShape, routed: Routing, hidden: int, what: str
) -> tuple[Operation, ...]:
    """Passes that copy tokens into expert order (dispatch) or sum them back (combine).

    All-to-all: the sender makes the copies, and a receiver with several experts sorts what arrives,
    also from itself alone (Megatron-Core `MoEAlltoAllTokenDispatcher`).
    DeepEP and all-gather: the receiver makes the copies. Fused permutation (sync-free stage 1 and
    up) is one kernel instead of an index, a sort and a gather.
    """
    fused = _fused(shape)
    launches = PERMUTE_KERNELS[fused]
    row = float(BF16_BYTES * hidden)
    if shape.dispatcher == "deepep":
        moved = routed.unique_rows + routed.rows
        return (MemoryPass(f"moe_{what}_permute", row * moved, launches),)
    if shape.dispatcher == "allgather":
        gathered = routed.sent_tokens * shape.ep * shape.etp
        moved = min(gathered, routed.rows) + routed.rows
        return (MemoryPass(f"moe_{what}_permute", row * moved, launches),)
    passes = [
        MemoryPass(f"moe_{what}_permute", row * (routed.sent_tokens + routed.sent_rows), launches)
    ]
    if routed.local_experts > 1:
        sort = MemoryPass(f"moe_{what}_sort", row * 2 * routed.rows, SORT_KERNELS[fused])
        passes.append(sort)
    return tuple(passes)


def _fused(shape: WorkShape) -> bool:
    """Whether router and permutation are fused kernels: sync-free stage 1 and up brings them."""
    return shape.sync_free_stage >= 1


def _preprocessing(architecture: Architecture, shape: WorkShape) -> tuple[Operation, ...]:
    """Counting tokens per expert before an all-to-all; DeepEP's layout kernel is its own."""
    if shape.dispatcher != "alltoall" or shape.ep * shape.etp == 1:
        return ()
    experts = int(architecture.num_experts or 1)
    counts = float(FP32_BYTES * experts * shape.ep * shape.etp)
    return (MemoryPass("moe_dispatch_preprocess", 2 * counts, PREPROCESS_KERNELS),)


def host_syncs(shape: WorkShape) -> int:
    """Times the host waits for the GPU in the forward pass of one MoE block."""
    return SYNC_POINTS - SYNCS_REMOVED[shape.sync_free_stage]


def _exchange(
    architecture: Architecture, shape: WorkShape, routed: Routing, what: str
) -> tuple[Operation, ...]:
    """Collectives that move tokens to experts (dispatch) or back (combine).

    The message is that of the busiest rank. Expert tensor parallelism gathers over etp before the
    experts and reduce-scatters after: every routed copy behind an all-to-all, and whole tokens
    where the exchange runs over ep and etp together (all-gather; DeepEP, which sends a token once
    per rank: Megatron-Core's flex dispatcher).
    """
    hidden = architecture.hidden_size
    row = float(BF16_BYTES * hidden)
    dispatches = what == "dispatch"
    deepep, gathers = shape.dispatcher == "deepep", shape.dispatcher == "allgather"
    operations: list[Operation] = []
    if shape.dispatch_ranks > 1 and gathers:
        whole = row * routed.sent_tokens * shape.dispatch_ranks
        operations.append(_gathered("moe", "ep", whole, dispatches))
    elif shape.dispatch_ranks > 1:
        topk = architecture.moe_router_topk
        copies, forwarding = float(topk), None
        tokens = row * routed.sent_tokens
        if deepep:
            experts = int(architecture.num_experts or 1)
            ranks = min(shape.dispatch_ranks, experts)
            copies = min(copies, distinct_ranks(experts, topk, ranks))
            forwarding = Forwarding(tokens * shape.routed_load, experts, topk)
        size = tokens * copies * shape.routed_load
        operations.append(Collective(f"moe_{what}", "alltoall", size, "ep", deepep, forwarding))
    if shape.etp > 1:
        rows = routed.unique_rows if deepep else routed.rows
        if gathers:
            rows = routed.sent_tokens * shape.dispatch_ranks * shape.etp
        operations.append(_gathered("etp", "etp", row * rows, dispatches, overlappable=deepep))
    return tuple(operations if dispatches else reversed(operations))


def _gathered(
    name: str, group: GroupName, whole: float, dispatches: bool, *, overlappable: bool = False
) -> Collective:
    """All-gather of `whole` bytes on the way to the experts, reduce-scatter on the way back."""
    if dispatches:
        return Collective(f"{name}_allgather", "allgather", whole, group, overlappable)
    return Collective(f"{name}_reduce_scatter", "reduce_scatter", whole, group, overlappable)


def _experts(
    architecture: Architecture, shape: WorkShape, routed: Routing
) -> tuple[ModuleWork, ...]:
    """The routed experts of this GPU: grouped GEMMs over them."""
    block = FeedForward(
        "experts",
        routed.rows_per_expert,
        -(-int(architecture.moe_ffn_hidden_size or 0) // shape.etp),
        architecture.hidden_size,
        architecture.gated_mlp,
        experts=routed.local_experts,
        dtype=shape.linear_dtype,
        grouped=shape.grouped_gemm,
        routed=True,
    )
    return feed_forward(
        block,
        shape,
        parameters.routed_experts(architecture, shape.shards),
        TensorParallel(),
        TensorParallel(),
        allocated_rows=routed.allocated_rows,
    )


def _shared_expert(architecture: Architecture, shape: WorkShape) -> tuple[ModuleWork, ...]:
    """The always-on expert: a dense block of its own width; its input is the block's input."""
    width = int(architecture.shared_expert_hidden_size or 0)
    if not width:
        return ()
    hidden = architecture.hidden_size
    block = FeedForward(
        "shared",
        shape.tokens,
        -(-width // shape.tp),
        hidden,
        architecture.gated_mlp,
        dtype=shape.linear_dtype,
    )
    modules = feed_forward(
        block,
        shape,
        parameters.shared_expert(architecture, shape.shards),
        enter_parallel("tp_shared", hidden, shape),
        leave_parallel("tp_shared", hidden, shape),
    )
    if not shape.fp8:
        return modules
    up = modules[0]
    kept = SavedTensor("shared_input", mlp_input(architecture, shape).num_bytes)
    return (
        ModuleWork(
            up.name, up.forward, up.input_grad, up.weight_grad, (kept, *up.saved), up.parameters
        ),
        *modules[1:],
    )


def exchange_bytes(architecture: Architecture, shape: WorkShape) -> float:
    """Bytes alive while tokens are exchanged: what is sent and what is received, in bf16.

    DeepEP with sync-free stage 2 and up receives into a buffer for the worst case, every token of
    every expert rank (Primus, `num_worst_tokens`).
    """
    if shape.ep * shape.etp == 1:
        return 0.0
    routed = routing(architecture, shape)
    row = float(BF16_BYTES * architecture.hidden_size)
    if shape.dispatcher == "allgather":
        return row * (routed.sent_tokens * shape.ep * shape.etp + routed.rows)
    if shape.dispatcher == "alltoall":
        return row * (routed.sent_rows + routed.rows)
    worst = routed.sent_tokens * shape.ep * shape.etp
    received = worst if shape.sync_free_stage >= 2 else routed.unique_rows
    return row * (routed.sent_tokens + received + routed.allocated_rows)
