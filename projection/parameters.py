"""Parameters of each module on one GPU, by how they are sharded.

Widths follow Megatron-Core's modules: column- and row-parallel weights divide by tp, norms, router
and latent down-projections are replicated, routed experts divide by ep·etp. Counting the whole
model is the same functions with every group of size one, so there is one formula per module.
"""

from dataclasses import dataclass

from projection.operations import Parameters
from schemas.architecture import Architecture


@dataclass(frozen=True, slots=True)
class Shards:
    """Sizes of the groups that divide weights."""

    tp: int = 1
    ep: int = 1
    etp: int = 1


WHOLE = Shards()
"""No sharding: the model's own parameters."""


def padded_vocab(vocab_size: int, divisible_by: int, tp: int) -> int:
    """Vocabulary rounded up to a multiple of `divisible_by` · tp, as Megatron pads it."""
    multiple = divisible_by * tp
    return -(-vocab_size // multiple) * multiple


def norm(architecture: Architecture, width: int) -> Parameters:
    """One RMSNorm (a gain) or LayerNorm (gain and bias) over `width`; replicated."""
    return Parameters(replicated=width * (2 if architecture.normalization == "LayerNorm" else 1))


def grouped_attention(architecture: Architecture, shards: Shards) -> Parameters:
    """Q, K, V and output projections of grouped-query attention, biases and per-head extras.

    With fewer KV groups than tp each GPU keeps one whole group (Megatron replicates them).
    """
    a = architecture
    heads, groups = a.num_attention_heads, max(a.num_query_groups, shards.tp)
    query = a.hidden_size * heads * a.kv_channels * (2 if a.attention_output_gate else 1)
    key_value = 2 * a.hidden_size * groups * a.kv_channels
    output = heads * a.kv_channels * a.hidden_size
    sharded: float = (query + key_value + output) / shards.tp
    replicated: float = 0
    if a.add_qkv_bias or a.add_bias_linear:
        sharded += (heads + 2 * groups) * a.kv_channels / shards.tp
    if a.add_bias_linear:
        replicated += a.hidden_size
    if a.attention_sinks:
        sharded += heads / shards.tp
    if a.qk_layernorm:
        replicated += 2 * norm(a, a.kv_channels).replicated
    return Parameters(tp_sharded=sharded, replicated=replicated)


def latent_attention(architecture: Architecture, shards: Shards) -> Parameters:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, §2.1).

    Up-projections and the output divide by tp; down-projections and their norms are replicated.
    """
    a = architecture
    heads, rope = a.num_attention_heads, int(a.qk_pos_emb_head_dim or 0)
    nope, value, latent = int(a.qk_head_dim or 0), a.v_dim, int(a.kv_lora_rank or 0)
    replicated: float = a.hidden_size * (latent + rope) + norm(a, latent).replicated
    query_input = a.hidden_size
    if a.q_lora_rank is not None:
        replicated += a.hidden_size * a.q_lora_rank + norm(a, a.q_lora_rank).replicated
        query_input = a.q_lora_rank
    sharded = (
        query_input * heads * (nope + rope)
        + latent * heads * (nope + value)
        + heads * value * a.hidden_size
    ) / shards.tp
    return Parameters(tp_sharded=sharded, replicated=replicated)


def attention(architecture: Architecture, shards: Shards) -> Parameters:
    """The attention block of one layer, without its input norm."""
    if architecture.attention == "mla":
        return latent_attention(architecture, shards)
    return grouped_attention(architecture, shards)


def mlp_weights(architecture: Architecture, ffn: int) -> int:
    """Weights of one feed-forward block of width `ffn`: gate and up (or up alone), and down."""
    return architecture.hidden_size * ffn * (3 if architecture.gated_mlp else 2)


def mlp_biases(architecture: Architecture, ffn: int) -> tuple[int, int]:
    """Biases of one feed-forward block: (of the first, width-sharded linear, of the second)."""
    if not architecture.add_bias_linear:
        return 0, 0
    return ffn * (2 if architecture.gated_mlp else 1), architecture.hidden_size


def dense_mlp(architecture: Architecture, shards: Shards) -> Parameters:
    """The feed-forward block of a dense layer."""
    first, second = mlp_biases(architecture, architecture.ffn_hidden_size)
    weights = mlp_weights(architecture, architecture.ffn_hidden_size)
    return Parameters(tp_sharded=(weights + first) / shards.tp, replicated=second)


def router(architecture: Architecture) -> Parameters:
    """The expert router's weight (and bias, where the model has one); replicated."""
    experts = int(architecture.num_experts or 0)
    return Parameters(
        replicated=experts * (architecture.hidden_size + (1 if architecture.router_bias else 0))
    )


def routed_experts(architecture: Architecture, shards: Shards) -> Parameters:
    """The routed experts of one MoE layer that live on one GPU: num_experts / ep, each / etp."""
    ffn = int(architecture.moe_ffn_hidden_size or 0)
    first, second = mlp_biases(architecture, ffn)
    one_expert = (mlp_weights(architecture, ffn) + first) / shards.etp + second
    return Parameters(routed_experts=int(architecture.num_experts or 0) / shards.ep * one_expert)


def shared_expert(architecture: Architecture, shards: Shards) -> Parameters:
    """The always-on expert of an MoE layer, with its own width; sharded like a dense block."""
    ffn = int(architecture.shared_expert_hidden_size or 0)
    if not ffn:
        return Parameters()
    first, second = mlp_biases(architecture, ffn)
    gate = architecture.hidden_size if architecture.shared_expert_gate else 0
    return Parameters(
        tp_sharded=(mlp_weights(architecture, ffn) + first) / shards.tp, replicated=second + gate
    )


def layer_norms(architecture: Architecture) -> Parameters:
    """The norms of one layer: before attention and before the MLP (and after both: sandwich)."""
    count = 4 if architecture.sandwich_norm else 2
    return Parameters(replicated=count * norm(architecture, architecture.hidden_size).replicated)


def embedding(architecture: Architecture, shards: Shards, vocab: int) -> Parameters:
    """The token embedding of `vocab` (padded) rows, and learned positions where there are any."""
    positions = (architecture.learned_positions or 0) * architecture.hidden_size
    return Parameters(tp_sharded=vocab * architecture.hidden_size / shards.tp, replicated=positions)


def output_head(architecture: Architecture, shards: Shards, vocab: int) -> Parameters:
    """The output projection. Tied embeddings share it when both ends are on one GPU."""
    return Parameters(tp_sharded=vocab * architecture.hidden_size / shards.tp)


def mtp_projection(architecture: Architecture, shards: Shards) -> Parameters:
    """What one multi-token-prediction depth adds to a decoder layer (DeepSeek-V3, §2.2).

    Two norms over the inputs, a projection of both to the hidden size, and a final norm.
    """
    width = architecture.hidden_size
    return Parameters(
        tp_sharded=2 * width * width / shards.tp,
        replicated=3 * norm(architecture, width).replicated,
    )


def add(*parts: Parameters) -> Parameters:
    """Bucket-wise sum."""
    return Parameters(
        tp_sharded=sum(p.tp_sharded for p in parts),
        replicated=sum(p.replicated for p in parts),
        routed_experts=sum(p.routed_experts for p in parts),
    )


def layer(architecture: Architecture, shards: Shards, *, moe: bool) -> Parameters:
    """One decoder layer on one GPU."""
    common = add(layer_norms(architecture), attention(architecture, shards))
    if not moe:
        return add(common, dense_mlp(architecture, shards))
    return add(
        common,
        router(architecture),
        routed_experts(architecture, shards),
        shared_expert(architecture, shards),
    )


@dataclass(frozen=True, slots=True)
class ModelSize:
    """Parameters of the whole model; `total` is without multi-token prediction, as published."""

    embedding: int
    layers: int
    final_norm: int
    output: int
    mtp: int
    active: int
    """Parameters one token passes through: top-k experts of each MoE layer, the rest in full."""

    @property
    def total(self) -> int:
        """All but the MTP modules."""
        return self.embedding + self.layers + self.final_norm + self.output


def model_size(architecture: Architecture) -> ModelSize:
    """Count the whole model's parameters, unpadded vocabulary."""
    a = architecture
    layers = active_layers = 0.0
    share = a.moe_router_topk / a.num_experts if a.num_experts else 0.0
    for index in range(a.num_layers):
        one = layer(a, WHOLE, moe=a.is_moe_layer(index))
        layers += one.total
        active_layers += one.dense + one.routed_experts * share
    last_is_moe = a.is_moe_layer(a.num_layers - 1)
    mtp = a.mtp_num_layers * (
        mtp_projection(a, WHOLE).total + layer(a, WHOLE, moe=last_is_moe).total
    )
    table = embedding(a, WHOLE, a.vocab_size).total
    output = 0.0 if a.tied_embeddings else output_head(a, WHOLE, a.vocab_size).total
    final = norm(a, a.hidden_size).total
    return ModelSize(
        embedding=round(table),
        layers=round(layers),
        final_norm=round(final),
        output=round(output),
        mtp=round(mtp),
        active=round(table + active_layers + final + output),
    )
