"""A Hugging Face `config.json` as a model preset, by its `model_type`.

Each family is a function from the config's keys to the framework's. Defaults for keys a config
leaves out are those of the family's configuration class in `transformers`.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from schemas.errors import UnsupportedModel, WorkloadError
from tasks.resolve.sources import Source
from tasks.resolve.unsupported import refuse_model_type
from tasks.resolve.yaml_file import MAX_DEPTH, YamlFile

Config = Mapping[str, Any]
_MAX_LAYERS: Final = 10_000

_EXPERT_KERNELS: Final = {"moe_grouped_gemm": True, "moe_token_dispatcher_type": "alltoall"}


def read_config(data: bytes, source: Source) -> YamlFile:
    """The bytes of a `config.json` as the settings of a model preset.

    Raises WorkloadError for what is not a model's config, UnsupportedModel for a family the
    oracle does not describe.
    """
    config = _parse(data, source.label)
    inner = config.get("text_config")
    if isinstance(inner, dict):
        config = {"model_type": config.get("model_type")} | inner
    family = _family(config, source.label)
    reader = _Reader(config, source.label)
    settings = {
        "model_type": "gpt",
        "position_embedding_type": "rope",
        "normalization": "RMSNorm",
        "swiglu": True,
        "vocab_size": reader.size("vocab_size"),
        "num_layers": reader.size("num_hidden_layers", maximum=_MAX_LAYERS),
        "hidden_size": reader.size("hidden_size"),
        "num_attention_heads": reader.size("num_attention_heads"),
        "max_position_embeddings": reader.optional("max_position_embeddings"),
    } | family(reader)
    return YamlFile(source.label, settings, hashlib.sha256(data).hexdigest())


def _parse(data: bytes, label: str) -> dict[str, Any]:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not a number a config can hold")

    try:
        text = data.decode("utf-8-sig")
        if _depth(text) > MAX_DEPTH:
            raise WorkloadError(f"{label}: nested more than {MAX_DEPTH} levels deep")
        config = json.loads(text, parse_constant=refuse)
    except json.JSONDecodeError as reason:
        raise WorkloadError(f"{label}:{reason.lineno}: not JSON: {reason.msg}") from reason
    except ValueError as reason:
        raise WorkloadError(f"{label}: not JSON: {reason}") from reason
    if not isinstance(config, dict):
        raise WorkloadError(f"{label}: expected a JSON object")
    return config


def _depth(text: str) -> int:
    """Deepest run of open brackets: an upper bound on nesting, strings included."""
    depth = deepest = 0
    for character in text:
        if character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


class _Reader:
    """Typed access to one config."""

    def __init__(self, config: Config, label: str) -> None:
        self.config = config
        self.label = label

    def optional(self, *keys: str) -> int | None:
        """The first of `keys` that is set, as a count; None when none is."""
        for key in keys:
            value = self.config.get(key)
            if value is None:
                continue
            whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
            if isinstance(value, bool) or not whole or value < 0:
                raise WorkloadError(f"{self.label}: {key}: expected a count, got {value!r:.40}")
            return int(value)
        return None

    def size(self, *keys: str, default: int | None = None, maximum: int = 10**12) -> int:
        """The first of `keys` that is set, at least 1, or the default."""
        value = self.optional(*keys)
        value = default if value is None else value
        if value is None:
            raise WorkloadError(f"{self.label}: {keys[0]} is missing")
        if not 1 <= value <= maximum:
            raise WorkloadError(f"{self.label}: {keys[0]}: expected 1 to {maximum}, got {value}")
        return value

    def flag(self, key: str, default: bool = False) -> bool:
        """A boolean."""
        value = self.config.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise WorkloadError(f"{self.label}: {key}: expected true or false, got {value!r:.40}")
        return value

    def items(self, key: str) -> list[Any] | None:
        """A list, None when unset."""
        value = self.config.get(key)
        if value is not None and not isinstance(value, list):
            raise WorkloadError(f"{self.label}: {key}: expected a list, got {value!r:.40}")
        return value

    @property
    def layers(self) -> int:
        """Decoder layers."""
        return self.size("num_hidden_layers", maximum=_MAX_LAYERS)


Family = Callable[[_Reader], dict[str, Any]]


def _grouped(r: _Reader, *, qk_norm: bool = False, qkv_bias: bool = False) -> dict[str, Any]:
    """Grouped-query attention, embeddings and a dense MLP, as the Llama family names them."""
    heads = r.size("num_attention_heads")
    groups = r.size("num_key_value_heads", default=heads)
    head_dim = r.optional("head_dim") or math.ceil(r.size("hidden_size") / heads)
    return {
        "group_query_attention": True,
        "num_query_groups": groups,
        "kv_channels": head_dim,
        "ffn_hidden_size": r.size("intermediate_size"),
        "qk_layernorm": qk_norm,
        "add_qkv_bias": qkv_bias,
        "untie_embeddings_and_output_weights": not r.flag("tie_word_embeddings"),
    }


def _windows(r: _Reader, window: int | None, layers: list[int] | None = None) -> dict[str, Any]:
    """A sliding window of `window` keys, the query's own included, on the layers marked 1."""
    if not window:
        return {}
    marked: dict[str, Any] = {"window_size": [window - 1, 0]}
    types = r.items("layer_types")
    if types is not None:
        layers = [int(one == "sliding_attention") for one in types]
    return marked if layers is None else marked | {"window_attn_skip_freq": layers}


def _llama(r: _Reader) -> dict[str, Any]:
    return _grouped(r, qkv_bias=r.flag("attention_bias"))


def _mistral(r: _Reader) -> dict[str, Any]:
    return _grouped(r) | _windows(r, r.optional("sliding_window"))


def _mixtral(r: _Reader) -> dict[str, Any]:
    return _mistral(r) | {
        "num_experts": r.size("num_local_experts", default=8),
        "moe_router_topk": r.size("num_experts_per_tok", default=2),
        "moe_layer_freq": 1,
        **_EXPERT_KERNELS,
    }


def _qwen2(r: _Reader) -> dict[str, Any]:
    window = r.optional("sliding_window") if r.flag("use_sliding_window") else None
    first = r.optional("max_window_layers") or 0
    layers = [int(i >= first) for i in range(r.layers)] if window else None
    return _grouped(r, qkv_bias=True) | _windows(r, window, layers)


def _qwen3(r: _Reader) -> dict[str, Any]:
    return _qwen2(r) | {"qk_layernorm": True, "add_qkv_bias": r.flag("attention_bias")}


def _qwen_experts(r: _Reader) -> dict[str, Any]:
    step = r.size("decoder_sparse_step", default=1)
    dense = set(r.items("mlp_only_layers") or [])
    pattern = [int(i not in dense and (i + 1) % step == 0) for i in range(r.layers)]
    return {
        "num_experts": r.size("num_experts"),
        "moe_router_topk": r.size("num_experts_per_tok"),
        "moe_ffn_hidden_size": r.size("moe_intermediate_size"),
        "moe_layer_freq": pattern,
        **_EXPERT_KERNELS,
    }


def _qwen2_moe(r: _Reader) -> dict[str, Any]:
    return (
        _qwen2(r)
        | _qwen_experts(r)
        | {
            "moe_shared_expert_intermediate_size": r.size("shared_expert_intermediate_size"),
            "moe_shared_expert_gate": True,
        }
    )


def _qwen3_moe(r: _Reader) -> dict[str, Any]:
    return _qwen3(r) | _qwen_experts(r)


def _routed_and_shared(r: _Reader) -> dict[str, Any]:
    """Routed and shared experts after some dense layers, as DeepSeek's configs name them."""
    first = r.optional("first_k_dense_replace") or 0
    step = r.size("moe_layer_freq", default=1)
    expert = r.size("moe_intermediate_size")
    shared = r.optional("n_shared_experts") or 0
    return {
        "num_experts": r.size("n_routed_experts"),
        "moe_router_topk": r.size("num_experts_per_tok"),
        "moe_ffn_hidden_size": expert,
        "moe_shared_expert_intermediate_size": shared * expert or None,
        "moe_layer_freq": [int(i >= first and i % step == 0) for i in range(r.layers)],
        "mtp_num_layers": r.optional("num_nextn_predict_layers"),
        **_EXPERT_KERNELS,
    }


def _deepseek(r: _Reader) -> dict[str, Any]:
    """DeepSeek-V2 and V3, and Kimi K2, which has V3's layers."""
    return _routed_and_shared(r) | {
        "multi_latent_attention": True,
        "qk_layernorm": True,
        "q_lora_rank": r.optional("q_lora_rank"),
        "kv_lora_rank": r.size("kv_lora_rank"),
        "qk_head_dim": r.size("qk_nope_head_dim"),
        "qk_pos_emb_head_dim": r.size("qk_rope_head_dim"),
        "v_head_dim": r.size("v_head_dim"),
        "kv_channels": r.size("v_head_dim"),
        "group_query_attention": False,
        "ffn_hidden_size": r.size("intermediate_size"),
        "untie_embeddings_and_output_weights": not r.flag("tie_word_embeddings"),
    }


def _gpt_oss(r: _Reader) -> dict[str, Any]:
    alternate = [int(i % 2 == 0) for i in range(r.layers)]
    return (
        _grouped(r, qkv_bias=True)
        | _windows(r, r.optional("sliding_window"), alternate)
        | {
            "add_bias_linear": True,
            "softmax_type": "learnable",
            "num_experts": r.size("num_local_experts"),
            "moe_router_topk": r.size("num_experts_per_tok", "experts_per_token"),
            "moe_ffn_hidden_size": r.size("intermediate_size"),
            "moe_layer_freq": 1,
            **_EXPERT_KERNELS,
        }
    )


def _llama4(r: _Reader) -> dict[str, Any]:
    step = r.size("interleave_moe_layer_step", default=1)
    moe = r.items("moe_layers")
    chosen = set(range(step - 1, r.layers, step)) if moe is None else set(moe)
    expert = r.size("intermediate_size")
    return _grouped(r, qkv_bias=r.flag("attention_bias")) | {
        "ffn_hidden_size": r.size("intermediate_size_mlp"),
        "num_experts": r.size("num_local_experts"),
        "moe_router_topk": r.size("num_experts_per_tok", default=1),
        "moe_ffn_hidden_size": expert,
        "moe_shared_expert_intermediate_size": expert,
        "moe_layer_freq": [int(i in chosen) for i in range(r.layers)],
        **_EXPERT_KERNELS,
        "attention_chunk_size": r.optional("attention_chunk_size"),
    }


def _grok(r: _Reader) -> dict[str, Any]:
    """Grok-1 and Grok-2: four norms a layer; Grok-2 adds a dense MLP beside the experts."""
    residual = r.flag("residual_moe")
    return _grouped(r) | {
        "post_self_attn_layernorm": True,
        "post_mlp_layernorm": True,
        "num_experts": r.size("num_local_experts", "num_experts"),
        "moe_router_topk": r.size("num_experts_per_tok", default=2),
        "moe_ffn_hidden_size": r.size("moe_intermediate_size", "intermediate_size"),
        "moe_shared_expert_intermediate_size": r.size("intermediate_size") if residual else None,
        "moe_layer_freq": 1,
        **_EXPERT_KERNELS,
    }


def _minimax_m2(r: _Reader) -> dict[str, Any]:
    return _grouped(r, qk_norm=r.flag("use_qk_norm", default=True)) | {
        "num_experts": r.size("num_local_experts"),
        "moe_router_topk": r.size("num_experts_per_tok"),
        "moe_ffn_hidden_size": r.size("intermediate_size"),
        "moe_shared_expert_intermediate_size": r.optional("shared_intermediate_size") or None,
        "moe_layer_freq": 1,
        **_EXPERT_KERNELS,
    }


def _glm4_moe(r: _Reader) -> dict[str, Any]:
    qk_norm, bias = r.flag("use_qk_norm"), r.flag("attention_bias")
    return _grouped(r, qk_norm=qk_norm, qkv_bias=bias) | _routed_and_shared(r)


FAMILIES: Final[Mapping[str, Family]] = {
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "kimi_k2": _deepseek,
    "gpt_oss": _gpt_oss,
    "llama4": _llama4,
    "llama4_text": _llama4,
    "grok": _grok,
    "grok-1": _grok,
    "minimax_m2": _minimax_m2,
    "glm4_moe": _glm4_moe,
}


_BY_ARCHITECTURE: Final[Mapping[str, Family]] = {
    "Grok1ForCausalLM": _grok,
    "Grok1ModelForCausalLM": _grok,
    "MiniMaxM2ForCausalLM": _minimax_m2,
}
"""Families whose files do not always carry a `model_type` of their own."""


def _family(config: Config, label: str) -> Family:
    """How to read `config`, by its architecture where that is surer, else by its `model_type`."""
    name = config.get("model_type")
    architectures = config.get("architectures")
    first = architectures[0] if isinstance(architectures, list) and architectures else None
    if isinstance(first, str) and first in _BY_ARCHITECTURE:
        return _BY_ARCHITECTURE[first]
    if not isinstance(name, str):
        raise WorkloadError(f"{label}: no model_type: this is not a Hugging Face model config")
    if name in FAMILIES:
        return FAMILIES[name]
    refuse_model_type(name, f"{label}: model_type")
    raise UnsupportedModel(
        f"{label}: model_type {name!r:.60} is not one Refold reads; it reads"
        f" {', '.join(sorted(FAMILIES))}"
    )
