"""What a transformer is, independent of how it is parallelised."""

from typing import Literal

from pydantic import Field, model_validator

from schemas.model import FrozenModel

AttentionKind = Literal["gqa", "mla"]


class Architecture(FrozenModel):
    """A decoder-only transformer: dense or mixture-of-experts, grouped-query or latent attention.

    Widths are in elements, counts in pieces; `moe_layers[i]` says whether decoder layer i is MoE.
    """

    name: str
    num_layers: int = Field(gt=0)
    hidden_size: int = Field(gt=0)
    ffn_hidden_size: int = Field(gt=0)
    num_attention_heads: int = Field(gt=0)
    num_query_groups: int = Field(gt=0)
    kv_channels: int = Field(gt=0)
    vocab_size: int = Field(gt=0)

    attention: AttentionKind = "gqa"
    q_lora_rank: int | None = None
    kv_lora_rank: int | None = None
    qk_head_dim: int | None = None
    qk_pos_emb_head_dim: int | None = None
    v_head_dim: int | None = None
    qk_layernorm: bool = False
    attention_output_gate: bool = False
    attention_sinks: bool = False
    sliding_window: int | None = None
    """Keys a windowed layer's query attends to; None: every layer sees the whole prefix."""
    windowed_layers: tuple[bool, ...] = ()
    """Per layer, whether `sliding_window` applies; empty: all of them when a window is set."""

    gated_mlp: bool = True
    add_bias_linear: bool = False
    add_qkv_bias: bool = False
    normalization: Literal["RMSNorm", "LayerNorm"] = "RMSNorm"
    sandwich_norm: bool = False
    tied_embeddings: bool = False
    learned_positions: int | None = None
    """Rows of a learned absolute position table; None: rotary or none."""

    num_experts: int | None = None
    moe_router_topk: int = 1
    moe_ffn_hidden_size: int | None = None
    shared_expert_hidden_size: int | None = None
    shared_expert_gate: bool = False
    moe_layers: tuple[bool, ...] = ()
    router_bias: bool = False
    mtp_num_layers: int = 0

    @model_validator(mode="after")
    def _consistent(self) -> "Architecture":
        if self.moe_layers and len(self.moe_layers) != self.num_layers:
            raise ValueError(
                f"moe_layers has {len(self.moe_layers)} entries for {self.num_layers} layers"
            )
        if self.windowed_layers and len(self.windowed_layers) != self.num_layers:
            raise ValueError(
                f"windowed_layers has {len(self.windowed_layers)} entries"
                f" for {self.num_layers} layers"
            )
        if any(self.moe_layers) and (self.num_experts is None or self.moe_ffn_hidden_size is None):
            raise ValueError("an MoE layer needs num_experts and moe_ffn_hidden_size")
        if self.num_experts is not None and self.moe_router_topk > self.num_experts:
            raise ValueError(
                f"moe_router_topk {self.moe_router_topk} exceeds num_experts {self.num_experts}"
            )
        if self.attention == "mla" and None in (
            self.kv_lora_rank,
            self.qk_head_dim,
            self.qk_pos_emb_head_dim,
            self.v_head_dim,
        ):
            raise ValueError("multi-latent attention needs kv_lora_rank and its head dimensions")
        if self.num_attention_heads % self.num_query_groups:
            raise ValueError(
                f"num_query_groups {self.num_query_groups} does not divide"
                f" num_attention_heads {self.num_attention_heads}"
            )
        return self

    @property
    def is_moe(self) -> bool:
        """Whether any decoder layer routes tokens to experts."""
        return any(self.moe_layers)

    @property
    def qk_dim(self) -> int:
        """Width of one head's query and key."""
        if self.attention == "mla":
            return int(self.qk_head_dim or 0) + int(self.qk_pos_emb_head_dim or 0)
        return self.kv_channels

    @property
    def v_dim(self) -> int:
        """Width of one head's value."""
        return int(self.v_head_dim or 0) if self.attention == "mla" else self.kv_channels

    def is_moe_layer(self, layer: int) -> bool:
        """Whether decoder layer `layer` (0-based) is MoE; MTP layers follow the last one's kind."""
        if not self.moe_layers:
            return False
        return self.moe_layers[min(layer, self.num_layers - 1)]

    def window_of(self, layer: int) -> int | None:
        """The sliding window of decoder layer `layer` in keys, None: full causal attention."""
        if self.sliding_window is None:
            return None
        if self.windowed_layers and not self.windowed_layers[min(layer, self.num_layers - 1)]:
            return None
        return self.sliding_window
