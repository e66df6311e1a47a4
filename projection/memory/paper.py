"""Memory as the reference's simulate mode counts it: regime `paper`, kept for comparison only.

Primus Projection (arXiv 2610.19423, appendix B.1) and its published Mixtral 8x22B table: bytes per
parameter 4 + 10/DPm with DPm = world / (EP·PP), a vocabulary of 100352 for every model, no division
of weights by TP, per-layer activations without recomputation working sets, and the in-flight factor
PP · (1 + (PP - 1)/(PP·VPP)) · min(1, GA/PP). First pipeline rank only.
"""

from dataclasses import dataclass
from math import ceil

from projection.memory.overheads import GIB
from projection.stages import Chunk, StageMap
from projection.work.recompute import full
from schemas.architecture import Architecture
from schemas.trial import NormalTrial
from schemas.workload import Workload

VOCABULARY = 100352
BF16_BYTES = 2
WEIGHT_AND_GRADIENT_BYTES = 4
OPTIMIZER_BYTES = 10
LOSS_BYTES = 4


@dataclass(frozen=True, slots=True)
class PaperLayer:
    """Activation bytes of one layer's modules for one microbatch."""

    norms: float
    residuals: float
    attention: float
    mlp: float
    router: float

    @property
    def total(self) -> float:
        """The layer."""
        return self.norms + self.residuals + self.attention + self.mlp + self.router


@dataclass(frozen=True, slots=True)
class PaperMemory:
    """The two figures of the table, in 2^30 bytes, and the parameters behind the first."""

    parameters: float
    param_optimizer_gb: float
    activation_gb: float


def layer_parameters(architecture: Architecture, *, moe: bool, ep: int) -> float:
    """Parameters of one layer on rank 0: three norms of 2H each, attention, MLP or experts."""
    a = architecture
    norms = 3 * 2 * a.hidden_size
    attention = (
        _latent_parameters(a)
        if a.attention == "mla"
        else 2
        * a.hidden_size**2
        * (1 + a.num_query_groups / a.num_attention_heads)
        * (a.kv_channels * a.num_attention_heads / a.hidden_size)
    )
    factor = 3 if a.gated_mlp else 2
    if not moe:
        return norms + attention + factor * a.hidden_size * a.ffn_hidden_size
    experts = int(a.num_experts or 0)
    routed = experts / ep * factor * a.hidden_size * int(a.moe_ffn_hidden_size or 0)
    shared = factor * a.hidden_size * int(a.shared_expert_hidden_size or 0)
    return norms + attention + routed + shared + a.hidden_size * experts


def _latent_parameters(architecture: Architecture) -> float:
    """Multi-head latent attention's parameters as the reference counts them."""
    a = architecture
    heads, rope, value = a.num_attention_heads, int(a.qk_pos_emb_head_dim or 0), a.v_dim
    nope, latent = int(a.qk_head_dim or 0), int(a.kv_lora_rank or 0)
    query = (
        a.q_lora_rank * (a.hidden_size + heads * (nope + rope) + 1)
        if a.q_lora_rank is not None
        else a.hidden_size * heads * (nope + rope)
    )
    key_value = latent * (a.hidden_size + heads * (nope + value) + 1)
    return query + key_value + a.hidden_size * rope + heads * value * a.hidden_size


def layer_activation(
    architecture: Architecture, tokens: int, *, moe: bool, flash: bool, score_width: float = 0.0
) -> PaperLayer:
    """Activation bytes of one layer over `tokens` = mbs·S/(TP·CP) tokens.

    MoE: 2·t·k·(3·Fe + H), plus the shared expert as one more of its own width. `score_width`: what
    unfused attention keeps per token instead of the flash kernel's h·d.
    """
    a = architecture
    hidden, heads, groups, width = (
        a.hidden_size,
        a.num_attention_heads,
        a.num_query_groups,
        a.kv_channels,
    )
    one = float(BF16_BYTES * tokens)
    softmax: float = heads * width if flash else score_width
    attention: float
    if a.attention == "mla":
        attention = heads * (2 * a.qk_dim + 2 * a.v_dim + a.qk_dim)
    else:
        extra = 2 * groups * width if a.qk_layernorm else 0
        attention = heads * width + 2 * groups * width + hidden + softmax + extra
    up = 3 if a.gated_mlp else 2
    if moe:
        routed = a.moe_router_topk * (3 * int(a.moe_ffn_hidden_size or 0) + hidden)
        shared_width = int(a.shared_expert_hidden_size or 0)
        mlp = routed + (3 * shared_width + hidden if shared_width else 0)
    else:
        mlp = up * a.ffn_hidden_size + hidden
    return PaperLayer(
        norms=3 * one * hidden,
        residuals=2 * one * hidden,
        attention=one * attention,
        mlp=one * mlp,
        router=one * hidden if moe else 0.0,
    )


def in_flight_factor(pp: int, vpp: int, accumulation: int) -> float:
    """PP · F_intlv · F_ga (appendix B.1, pipeline schedule scaling)."""
    penalty = 1 + (pp - 1) / (pp * vpp) if vpp > 1 else 1.0
    return pp * penalty * min(1.0, accumulation / pp)


def paper_memory(
    workload: Workload, trial: NormalTrial, stages: StageMap, world_size: int
) -> PaperMemory:
    """Rank 0's parameters with their states, and its activations, as the reference prints them."""
    a = workload.architecture
    sharding = world_size // (trial.ep * trial.pp)
    sharded = trial.use_distributed_optimizer or trial.use_torch_fsdp2
    optimizer = OPTIMIZER_BYTES / sharding if sharded else OPTIMIZER_BYTES
    parameters = sum(_chunk_parameters(a, chunk, trial.ep) for chunk in stages.chunks[0])
    per_microbatch = sum(_chunk_activation(workload, trial, chunk) for chunk in stages.chunks[0])
    alive = in_flight_factor(trial.pp, trial.vpp, trial.gbs // sharding)
    return PaperMemory(
        parameters=parameters,
        param_optimizer_gb=parameters * (WEIGHT_AND_GRADIENT_BYTES + optimizer) / GIB,
        activation_gb=per_microbatch * alive / GIB,
    )


def _chunk_parameters(architecture: Architecture, chunk: Chunk, ep: int) -> float:
    layers = sum(
        layer_parameters(architecture, moe=architecture.is_moe_layer(layer), ep=ep)
        for layer in chunk.layers
    )
    table = VOCABULARY * architecture.hidden_size
    head = table + 2 * architecture.hidden_size
    return layers + (table if chunk.embedding else 0) + (head if chunk.output else 0)


def _chunk_activation(workload: Workload, trial: NormalTrial, chunk: Chunk) -> float:
    """One microbatch's bytes on one chunk: layers, and the model's ends it holds."""
    a = workload.architecture
    tokens = trial.mbs * workload.seq_length // trial.tp // trial.cp
    scores = a.num_attention_heads / trial.tp * ceil(workload.seq_length / trial.cp)
    kept = float(BF16_BYTES * tokens * a.hidden_size)
    recomputed = full(trial, chunk).layers
    total = 0.0
    for layer in chunk.layers:
        if layer in recomputed:
            total += kept
            continue
        one = layer_activation(
            a,
            tokens,
            moe=a.is_moe_layer(layer),
            flash=workload.flash_attention,
            score_width=scores,
        )
        selective = trial.recompute_granularity == "selective"
        total += one.total - (one.attention if selective else 0.0)
    if chunk.embedding:
        total += kept
    if chunk.output:
        total += kept + BF16_BYTES * tokens * VOCABULARY
        if not trial.cross_entropy_loss_fusion:
            logits = trial.mbs * workload.seq_length / trial.cp * VOCABULARY / trial.tp
            total += LOSS_BYTES * logits
    return total
