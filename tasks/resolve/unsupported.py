"""Refusals by name: model families whose layers an `Architecture` cannot describe."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, TypedDict

from schemas.errors import UnsupportedModel
from tasks.resolve.settings import Settings
from tasks.resolve.shipped import shipped_table


class _Family(TypedDict):
    what: str
    names: list[str]
    model_types: list[str]


_VARIANTS: Final = {
    "gated_delta_net": "gated delta net (linear attention)",
    "kimi_delta_attention": "Kimi delta attention (linear attention)",
    "dsa": "DeepSeek sparse attention (DSA)",
}
"""Values of `experimental_attention_variant`, and what they are."""

_MARKERS: Final = {
    "is_hybrid_model": "hybrid of attention and Mamba or linear-attention layers",
    "hybrid_override_pattern": "hybrid of attention and Mamba or linear-attention layers",
    "hybrid_attention_enabled": "compressed sparse attention and hyper-connections",
    "hc_mult": "hyper-connections",
    "attn_res_block_size": "attention residuals",
    "moe_latent_size": "experts in a latent space narrower than the model",
    "routed_expert_hidden_size": "experts in a latent space narrower than the model",
    "heterogeneous_layers_config_path": "layers of differing shapes",
    "heterogeneous_layers_config_encoded_json": "layers of differing shapes",
    "vision_pretraining": "vision model",
    "retro_add_retriever": "retrieval-augmented layers",
}
"""Keys that, when set, say that a model has layers of another kind."""


def published_layers(name: str) -> str | None:
    """What layers the model of the file `name` is known to have, where they are not describable."""
    stem = Path(name).name.removesuffix(".yaml").lower()
    for family in _families():
        if any(fnmatchcase(stem, pattern) for pattern in family["names"]):
            return family["what"]
    return None


def refuse_name(name: str, asked_by: str) -> None:
    """Raise UnsupportedModel when `name` is a model file known not to be describable."""
    what = published_layers(name)
    if what is not None:
        raise UnsupportedModel(f"{asked_by}: {Path(name).name}: unsupported: {what}")


def refuse_model_type(model_type: str, asked_by: str) -> None:
    """Raise UnsupportedModel when `model_type` is one of the families of the shipped table."""
    for family in _families():
        if model_type in family["model_types"]:
            raise UnsupportedModel(f"{asked_by} {model_type}: unsupported: {family['what']}")


def refuse_layers(settings: Settings) -> None:
    """Raise UnsupportedModel when the settings describe layers other than a transformer's."""
    for key, what in _MARKERS.items():
        if settings.raw(key) not in (None, False, 0, "", []):
            raise _refusal(settings, key, what)
    model_type = settings.text("model_type")
    if model_type not in (None, "gpt"):
        refuse_model_type(model_type, settings.where("model_type"))
        raise _refusal(settings, "model_type", f"model_type {model_type}")
    variant = settings.text("experimental_attention_variant")
    if variant is not None:
        what = _VARIANTS.get(variant, f"attention variant {variant!r:.40}")
        raise _refusal(settings, "experimental_attention_variant", what)
    if settings.raw("linear_attention_freq") is not None:
        raise _refusal(settings, "linear_attention_freq", "linear attention")
    kinds: Any = settings.raw("lfm_layer_types")
    if isinstance(kinds, list) and any(kind != "full_attention" for kind in kinds):
        raise _refusal(settings, "lfm_layer_types", "short-convolution layers")
    spec = str(settings.raw("spec") or "").lower()
    if "mamba" in spec or "hybrid" in spec:
        raise _refusal(settings, "spec", "Mamba or hybrid layers")


def _refusal(settings: Settings, key: str, what: str) -> UnsupportedModel:
    return UnsupportedModel(f"{settings.where(key)}: unsupported: {what}")


def _families() -> Sequence[_Family]:
    """The shipped table."""
    families: list[_Family] = shipped_table("unsupported_models.yaml")["families"]
    return families
