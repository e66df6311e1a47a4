"""The vocabulary in which a layer's work is described once, and priced for memory and for time.

Plain slotted dataclasses: they are built by the thousand in the inner loop.
"""

from dataclasses import dataclass, field
from math import comb
from typing import Literal

Dtype = Literal["bf16", "fp16", "fp32", "fp8"]
GroupName = Literal["tp", "cp", "ep", "etp", "dp", "edp", "pp"]
CollectiveKind = Literal["allreduce", "allgather", "reduce_scatter", "alltoall", "sendrecv"]


@dataclass(frozen=True, slots=True)
class Gemm:
    """D[m, n] = A[m, k] B[k, n], `batch` times; elements of `dtype`."""

    name: str
    m: int
    n: int
    k: int
    batch: int = 1
    dtype: Dtype = "bf16"
    layout: Literal["NN", "NT", "TN"] = "TN"
    """TN in forward, NN for input gradients, NT for weight gradients."""
    call: Literal["plain", "linear", "grouped"] = "plain"
    """Who launches it: a framework function, a linear layer, a layer of `batch` experts."""


@dataclass(frozen=True, slots=True)
class AttentionCore:
    """Softmax(Q Kᵀ) V of one microbatch on one GPU. `window`: keys a query sees, None: all."""

    name: str
    batch: int
    heads: int
    kv_heads: int
    seq_q: int
    seq_kv: int
    d_qk: int
    d_v: int
    causal: bool = True
    window: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryPass:
    """A kernel bound by HBM traffic: bytes read plus written, in `launches` kernels."""

    name: str
    num_bytes: float
    launches: int = 1


@dataclass(frozen=True, slots=True)
class Forwarding:
    """Tokens that cross to each node once and are handed on there, however many of its ranks they
    are for: DeepEP's internode kernels (a token carries a bit per rank of the node it goes to).

    `token_bytes`: every token of the sender once.
    """

    token_bytes: float
    num_experts: int
    topk: int

    def crossing_bytes(self, num_nodes: int) -> float:
        """Bytes that leave the sender's node when the experts lie on `num_nodes`."""
        nodes = min(num_nodes, self.num_experts)
        copies = distinct_ranks(self.num_experts, self.topk, nodes)
        return self.token_bytes * copies * (nodes - 1) / nodes


def distinct_ranks(num_experts: int, topk: int, ranks: int) -> float:
    """Expected ranks that hold at least one of a token's `topk` experts, routing uniform.

    ranks · (1 - C(E - E/ranks, k) / C(E, k)): a rank is missed when all k experts lie elsewhere.
    """
    elsewhere = num_experts - num_experts // ranks
    return ranks * (1 - comb(elsewhere, topk) / comb(num_experts, topk))


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective call; `num_bytes` is the full message per rank as its API counts it.

    allreduce: the buffer. allgather: the gathered result. reduce_scatter: the input.
    alltoall: what one rank sends in all, itself included. sendrecv: the message.
    """

    name: str
    kind: CollectiveKind
    num_bytes: float
    group: GroupName
    overlappable: bool = False
    forwarding: Forwarding | None = None
    """Of an all-to-all: how its tokens cross nodes; None: each copy by itself."""


Operation = Gemm | AttentionCore | MemoryPass | Collective


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """Bytes one microbatch keeps on one GPU from a module's forward to its backward."""

    name: str
    num_bytes: float
    tag: Literal["measured", "estimated", "derived"] = "derived"


@dataclass(frozen=True, slots=True)
class Parameters:
    """Parameters of a module on one GPU, by which group shards or replicates them."""

    tp_sharded: float = 0.0
    replicated: float = 0.0
    routed_experts: float = 0.0

    @property
    def dense(self) -> float:
        """Parameters whose gradients are reduced over the data-parallel group."""
        return self.tp_sharded + self.replicated

    @property
    def total(self) -> float:
        """All of them."""
        return self.tp_sharded + self.replicated + self.routed_experts


@dataclass(frozen=True, slots=True)
class ModuleWork:
    """One module of a layer on one GPU for one microbatch."""

    name: str
    forward: tuple[Operation, ...]
    input_grad: tuple[Operation, ...]
    weight_grad: tuple[Operation, ...]
    saved: tuple[SavedTensor, ...]
    parameters: Parameters = field(default_factory=Parameters)


@dataclass(frozen=True, slots=True)
class LayerWork:
    """A transformer layer (or embedding, or output head) as its modules in order."""

    kind: Literal["dense", "moe", "embedding", "output", "mtp"]
    modules: tuple[ModuleWork, ...]
    input_bytes: float
    """The layer's input, all that full recomputation keeps."""
    host_syncs: int = 0
    """Times the host waits for a value of the GPU in its forward pass."""
