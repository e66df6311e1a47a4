"""What activation recomputation re-runs and stops saving: one object for memory and for time.

Full recomputation keeps a unit's input and re-runs its layers; `block` n makes the first n layers
of every virtual stage such units, `uniform` n makes units of n layers out of all of them, layer ids
name them (Megatron-LM `transformer_block.py`). Selective re-runs named modules of every layer.
"""

from dataclasses import dataclass
from difflib import get_close_matches

from projection.operations import LayerWork, ModuleWork
from projection.stages import Chunk
from schemas.errors import WorkloadError
from schemas.trial import NormalTrial

SELECTIVE_MODULES = {
    "core_attn": (
        ("core_attention",),
        ("softmax_lse", "attention_scores", "attention_out"),
    ),
    "layernorm": (
        ("attention_norm", "mlp_norm"),
        ("qkv_input", "mlp_input"),
    ),
    "moe_act": (("experts_activation",), ("experts_activation",)),
    "mla_up_proj": (("latent_up",), ("query_key_value",)),
    "mlp": (
        ("mlp_up", "mlp_activation", "mlp_down"),
        ("mlp_hidden", "mlp_activation"),
    ),
    "moe": (
        (
            "router",
            "dispatch",
            "experts_up",
            "experts_activation",
            "experts_down",
            "combine",
            "shared_up",
            "shared_activation",
            "shared_down",
        ),
        (
            "router_scores",
            "expert_input",
            "row_map",
            "experts_hidden",
            "experts_activation",
            "router_weights",
            "shared_input",
            "shared_hidden",
            "shared_activation",
        ),
    ),
    "shared_experts": (
        ("shared_up", "shared_activation", "shared_down"),
        ("shared_hidden", "shared_activation"),
    ),
}
"""Megatron's recompute module → (modules re-run, tensors no longer saved)."""

DEFAULT_SELECTIVE = ("core_attn",)


@dataclass(frozen=True, slots=True)
class SelectiveRecompute:
    """Modules whose forward is re-run in backward, and the tensors that are therefore not kept."""

    reruns: frozenset[str] = frozenset()
    drops: tuple[tuple[frozenset[str], frozenset[str]], ...] = ()
    """(modules, tensors no longer saved where a layer has one of them)."""

    def is_rerun(self, module: ModuleWork) -> bool:
        """Whether `module` runs again in backward."""
        return module.name in self.reruns

    def dropped(self, layer: LayerWork) -> frozenset[str]:
        """Names of the tensors `layer` stops saving: those it has a module to re-run for."""
        names = {module.name for module in layer.modules}
        return frozenset(
            tensor for modules, tensors in self.drops if modules & names for tensor in tensors
        )

    def dropped_bytes(self, layer: LayerWork) -> float:
        """Bytes that `layer` stops saving."""
        dropped = self.dropped(layer)
        return sum(
            tensor.num_bytes
            for module in layer.modules
            for tensor in module.saved
            if tensor.name in dropped
        )


NOTHING = SelectiveRecompute()


def selective(trial: NormalTrial) -> SelectiveRecompute:
    """The modules `trial` recomputes in every layer; nothing unless its granularity says so.

    Raises:
        WorkloadError: a module Megatron does not know, with the nearest right spelling.
    """
    if trial.recompute_granularity != "selective":
        return NOTHING
    names = trial.recompute_modules or DEFAULT_SELECTIVE
    for name in names:
        if name not in SELECTIVE_MODULES:
            near = get_close_matches(name, SELECTIVE_MODULES, n=1)
            raise WorkloadError(
                f"unknown recompute module {name!r}",
                hint=f"did you mean {near[0]!r}?" if near else ", ".join(SELECTIVE_MODULES),
            )
    parts = [SELECTIVE_MODULES[name] for name in names]
    return SelectiveRecompute(
        frozenset(name for reruns, _ in parts for name in reruns),
        tuple((frozenset(reruns), frozenset(dropped)) for reruns, dropped in parts),
    )


@dataclass(frozen=True, slots=True)
class FullRecompute:
    """Fully recomputed layers of one chunk. `units`: the layers behind each kept input."""

    layers: frozenset[int] = frozenset()
    units: tuple[tuple[int, ...], ...] = ()
    mtp: bool = False


NO_LAYERS = FullRecompute()


def full(trial: NormalTrial, chunk: Chunk) -> FullRecompute:
    """The layers of `chunk` that `trial` recomputes in full.

    MTP depths are recomputed by `uniform` only: Megatron-LM skips them under `block`.
    """
    if trial.recompute_granularity != "full":
        return NO_LAYERS
    if trial.recompute_layer_ids:
        chosen = [layer for layer in chunk.layers if layer in trial.recompute_layer_ids]
        return FullRecompute(frozenset(chosen), tuple((layer,) for layer in chosen))
    count = trial.recompute_num_layers
    if count == 0:
        return NO_LAYERS
    if trial.recompute_method == "uniform":
        units = tuple(
            chunk.layers[start : start + count] for start in range(0, len(chunk.layers), count)
        )
        return FullRecompute(frozenset(chunk.layers), units, mtp=chunk.mtp > 0)
    chosen = list(chunk.layers[:count])
    return FullRecompute(frozenset(chosen), tuple((layer,) for layer in chosen))
