"""A resolved workload: what to train and exactly what its file says about how."""

from typing import Any, Literal

from pydantic import Field

from schemas.architecture import Architecture
from schemas.model import FrozenModel
from schemas.trial import NormalTrial

GraphScope = Literal["full_iteration", "layer", "attn", "mlp", "moe_router", "moe_preprocess"]


class Precision(FrozenModel):
    """The training precision regime, from the workload's own fields."""

    params_dtype: Literal["bf16", "fp16", "fp32"] = "bf16"
    main_grads_dtype: Literal["fp32", "bf16"] = "fp32"
    main_params_dtype: Literal["fp32", "fp16"] = "fp32"
    exp_avg_dtype: Literal["fp32", "bf16", "fp16", "fp8"] = "fp32"
    exp_avg_sq_dtype: Literal["fp32", "bf16", "fp16", "fp8"] = "fp32"
    optimizer: Literal["adam", "sgd", "muon"] = "adam"
    fp8_recipe: str = "delayed"
    fp8_weight_transpose_cache: bool = True
    """Whether FP8 linear layers keep a transposed FP8 copy of their weights."""
    fp8_param_gather: bool = False
    grad_reduce_in_bf16: bool = False


class Workload(FrozenModel):
    """The workload as its files say it, with nothing changed: the baseline is trial 0."""

    name: str
    architecture: Architecture
    seq_length: int = Field(gt=0)
    baseline: NormalTrial
    precision: Precision = Precision()

    sequence_parallel: bool = True
    make_vocab_size_divisible_by: int = Field(default=128, gt=0)
    padded_vocab_size: int | None = None
    """Set only when the file fixes it; else vocabulary padded to the divisor times tp."""
    flash_attention: bool = True
    flash_attention_version: Literal[1, 2] | None = None
    """Kernels of FlashAttention 1 or 2 where newer ones exist; None: the fastest published."""
    attention_dropout: float = Field(default=0.0, ge=0, lt=1)
    hidden_dropout: float = Field(default=0.0, ge=0, lt=1)
    cp_comm_type: Literal["p2p", "a2a", "allgather", "a2a+p2p"] = "p2p"
    tp_comm_overlap: bool = False
    moe_dispatcher: Literal["allgather", "alltoall", "flex", "alltoall_seq"] = "alltoall"
    moe_grouped_gemm: bool = True
    moe_shared_expert_overlap: bool = False
    force_load_balancing: bool = False
    gradient_accumulation_fusion: bool = False
    cuda_graphs: tuple[GraphScope, ...] = ()
    """What graphs replay, so that launching it costs the host nothing: Megatron's
    `cuda_graph_scope`, `layer` where whole layers are captured."""

    framework: str = "megatron"
    source: str
    """Path of the workload file as the user gave it."""
    files: dict[str, str] = Field(default_factory=dict)
    """Every file read, by path as searched, with the SHA-256 of its bytes."""
    document: dict[str, Any] = Field(default_factory=dict)
    """The workload file after substitution, foreign keys included: what an overlay starts from."""
    trainer: str = "pre_trainer"
    """Key under `modules:` that holds the overrides."""
    warnings: tuple[str, ...] = ()
