"""The framework's model settings as an `Architecture`."""

from typing import Any, Final

from pydantic import ValidationError

from schemas.architecture import Architecture
from schemas.errors import WorkloadError
from schemas.wording import problem
from tasks.resolve.layer_pattern import MAX_LAYERS, PatternError, moe_layers
from tasks.resolve.settings import Settings
from tasks.resolve.unsupported import refuse_layers
from tasks.resolve.vocabulary import vocabulary

_WIDEST: Final = 10**7
_NORMS: Final = ("RMSNorm", "LayerNorm")
_POSITIONS: Final = ("rope", "learned_absolute", "none", "mrope", "yarn", "relative")


def architecture_of(settings: Settings, name: str) -> Architecture:
    """The transformer that the settings describe.

    Raises UnsupportedModel for layers that are none, WorkloadError for a value that is missing,
    of the wrong type, or at odds with another.
    """
    refuse_layers(settings)
    num_layers = settings.size("num_layers", maximum=MAX_LAYERS)
    hidden = settings.size("hidden_size", maximum=_WIDEST)
    gated = settings.flag("swiglu") or settings.flag("quick_geglu")
    ffn = settings.whole("ffn_hidden_size", maximum=_WIDEST) or _default_ffn(hidden, gated)
    fields = {
        "name": name,
        "num_layers": num_layers,
        "hidden_size": hidden,
        "ffn_hidden_size": ffn,
        "vocab_size": vocabulary(settings),
        "gated_mlp": gated,
        "add_bias_linear": settings.flag("add_bias_linear"),
        "normalization": settings.word("normalization", _NORMS) or "LayerNorm",
        "sandwich_norm": _sandwich(settings),
        "tied_embeddings": not settings.flag("untie_embeddings_and_output_weights"),
        "learned_positions": _learned_positions(settings),
        "mtp_num_layers": settings.whole("mtp_num_layers", minimum=0, maximum=64) or 0,
    }
    fields |= _attention(settings, hidden)
    fields |= _windows(settings, num_layers)
    fields |= _experts(settings, num_layers, ffn)
    try:
        return Architecture.model_validate(fields)
    except ValidationError as reason:
        first = reason.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        where = f"{settings.label}: {f'{key}: ' if key else ''}"
        raise WorkloadError(f"{where}{problem(first)}") from reason


def _default_ffn(hidden: int, gated: bool) -> int:
    """The width Megatron takes when none is given: 4·h, or ⌊8·h/3⌋ down to a multiple of 64.

    Source: `--ffn-hidden-size` in megatron/training/arguments.py.
    """
    return max(64, int(4 * hidden * 2 / 3) // 64 * 64) if gated else 4 * hidden


def _attention(settings: Settings, hidden: int) -> dict[str, Any]:
    """Heads, groups and widths of attention, latent attention's ranks included."""
    heads = settings.size("num_attention_heads", maximum=_WIDEST)
    latent = settings.flag("multi_latent_attention")
    channels = settings.whole("kv_channels", maximum=_WIDEST)
    if channels is None:
        if hidden % heads and not latent:
            raise settings.error(
                "num_attention_heads",
                f"{heads} does not divide hidden_size {hidden}; set kv_channels",
            )
        channels = max(1, hidden // heads)
    groups = None
    if settings.flag("group_query_attention") and not latent:
        groups = settings.whole("num_query_groups", maximum=_WIDEST)
        if groups is not None and heads % groups:
            problem = f"{groups} does not divide num_attention_heads {heads}"
            raise settings.error("num_query_groups", problem)
    fields: dict[str, Any] = {
        "num_attention_heads": heads,
        "num_query_groups": groups or heads,
        "kv_channels": channels,
        "qk_layernorm": settings.flag("qk_layernorm"),
        "add_qkv_bias": settings.flag("add_qkv_bias") or settings.flag("add_bias_linear"),
        "attention_output_gate": settings.flag("attention_output_gate"),
        "attention_sinks": settings.flag("use_sink_attention")
        or settings.raw("softmax_type") == "learnable",
    }
    if latent:
        fields |= {"attention": "mla", "q_lora_rank": settings.whole("q_lora_rank")}
        for key in ("kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim"):
            fields[key] = settings.size(key, maximum=_WIDEST)
    return fields


def _windows(settings: Settings, num_layers: int) -> dict[str, Any]:
    """The sliding window, in keys a query attends to, and the layers it applies to.

    Primus' sink attention has a window of its own, which wins where that kernel runs. Megatron's
    `window_size` is (keys before, keys after) besides the query's own; `window_attn_skip_freq` n
    leaves every n-th layer unwindowed, a list marks windowed layers with 1.
    """
    turbo = settings.flag("enable_primus_turbo") and settings.flag("use_turbo_attention")
    if turbo and settings.flag("use_sink_attention"):
        window = settings.whole("sink_sliding_window", minimum=0)
        if not window:
            return {}
        even_only = settings.flag("sink_window_even_layers_only")
        layers = tuple(layer % 2 == 0 for layer in range(num_layers)) if even_only else ()
        return {"sliding_window": window, "windowed_layers": layers}
    sides = settings.whole_list("window_size", minimum=-1)
    if sides is None or sides[0] == -1:
        return {}
    if len(sides) > 2:
        raise settings.error("window_size", f"expected (before, after), got {len(sides)} numbers")
    after = max(0, sides[1]) if len(sides) == 2 else 0
    return {
        "sliding_window": sides[0] + after + 1,
        "windowed_layers": _windowed_layers(settings, num_layers),
    }


def _windowed_layers(settings: Settings, num_layers: int) -> tuple[bool, ...]:
    """Which layers `window_attn_skip_freq` leaves windowed; empty when it leaves all so."""
    key = "window_attn_skip_freq"
    raw = settings.raw(key)
    if raw is None:
        return ()
    if not isinstance(raw, list):
        every = settings.size(key)
        return tuple((layer + 1) % every != 0 for layer in range(num_layers))
    marks = settings.whole_list(key) or ()
    if len(marks) != num_layers:
        raise settings.error(key, f"describes {len(marks)} layers, num_layers is {num_layers}")
    return tuple(mark != 0 for mark in marks)


def _experts(settings: Settings, num_layers: int, ffn: int) -> dict[str, Any]:
    """Experts, their widths, and the layers that have them."""
    experts = settings.whole("num_experts", minimum=0, maximum=10**6)
    if not experts:
        return {}
    freq = settings.raw("moe_layer_freq")
    try:
        layers = moe_layers(1 if freq is None else freq, num_layers)
    except PatternError as reason:
        raise settings.error("moe_layer_freq", str(reason)) from reason
    if not any(layers):
        return {}
    topk = settings.size("moe_router_topk", maximum=10**6)
    if topk > experts:
        raise settings.error("moe_router_topk", f"{topk} is more than num_experts {experts}")
    shared = settings.whole("moe_shared_expert_intermediate_size", minimum=0, maximum=_WIDEST)
    return {
        "num_experts": experts,
        "moe_router_topk": topk,
        "moe_ffn_hidden_size": settings.whole("moe_ffn_hidden_size", maximum=_WIDEST) or ffn,
        "shared_expert_hidden_size": shared or None,
        "shared_expert_gate": bool(shared) and settings.flag("moe_shared_expert_gate"),
        "moe_layers": layers,
        # Megatron's router takes a bias along with every other linear layer.
        "router_bias": settings.flag("add_bias_linear"),
    }


def _sandwich(settings: Settings) -> bool:
    """Whether each block is normed on both sides; one side more alone is not describable."""
    attention = settings.flag("post_self_attn_layernorm")
    mlp = settings.flag("post_mlp_layernorm")
    if attention != mlp:
        raise settings.error(
            "post_self_attn_layernorm" if attention else "post_mlp_layernorm",
            "a norm after attention alone or after the MLP alone is not modelled",
        )
    return attention


def _learned_positions(settings: Settings) -> int | None:
    """Rows of a learned position table, None for rotary or no positions."""
    kind = settings.word("position_embedding_type", _POSITIONS)
    if kind != "learned_absolute" or settings.flag("use_rotary_position_embeddings"):
        return None
    rows = settings.whole("max_position_embeddings", maximum=10**9)
    if rows is None:
        raise settings.error(
            "position_embedding_type",
            "learned_absolute needs max_position_embeddings; set that, or rope here",
        )
    return rows
