"""What a layer's work depends on besides the architecture: batch, shards, precision, fusions."""

from dataclasses import dataclass
from typing import Literal

from projection.hashed import HashedOnce
from projection.operations import Dtype
from projection.parameters import Shards

Dispatcher = Literal["allgather", "alltoall", "deepep"]
GradAccumulation = Literal["fused", "separate", "sharded"]


@dataclass(frozen=True, slots=True)
class WorkShape(HashedOnce):
    """One microbatch on one GPU. Frozen and hashable: sub-models are memoised on it."""

    micro_batch: int
    seq_length: int
    padded_vocab: int
    tp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1
    sequence_parallel: bool = False
    linear_dtype: Dtype = "bf16"
    """Dtype of the linear layers' GEMMs; attention, router and output head stay bf16."""
    fp8_amax_pass: bool = False
    """Whether the FP8 recipe reads a tensor for its maximum before it casts it."""
    flash_attention: bool = True
    attention_dropout: bool = False
    hidden_dropout: bool = False
    loss_fusion: bool = False
    cp_comm: Literal["p2p", "a2a", "allgather"] = "p2p"
    tp_comm_overlap: bool = False
    dispatcher: Dispatcher = "alltoall"
    dispatch_ranks: int = 1
    """Ranks the expert all-to-all is modelled over: ep, or the trial's target."""
    sync_free_stage: int = 0
    grouped_gemm: bool = True
    shared_expert_overlap: bool = False
    grad_accumulation: GradAccumulation = "separate"
    """How weight gradients reach the main gradient: in the GEMM, in a pass of their own, or (FSDP)
    reduce-scattered away."""
    __hash__ = HashedOnce.__hash__

    routed_load: float = 1.0
    """Expert load of the busiest rank over the mean: tokens there are scaled by it."""

    @property
    def tokens(self) -> int:
        """Tokens of the microbatch on this GPU: divided by cp, never by tp."""
        return self.micro_batch * self.seq_length // self.cp

    @property
    def residual_tokens(self) -> int:
        """Tokens in the regions between tensor-parallel blocks: divided by tp under SP."""
        return -(-self.tokens // self.tp) if self.sequence_parallel else self.tokens

    @property
    def shards(self) -> Shards:
        """Sizes of the groups that divide weights."""
        return Shards(tp=self.tp, ep=self.ep, etp=self.etp)

    @property
    def fp8(self) -> bool:
        """Whether linear layers run in FP8."""
        return self.linear_dtype == "fp8"

    @property
    def saved_linear_bytes(self) -> int:
        """Bytes per element a linear layer keeps of its input: its FP8 copy, else bf16."""
        return 1 if self.fp8 else 2
