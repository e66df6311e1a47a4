"""Warnings about a workload: keys that look misspelled, settings that do nothing or are unmodelled.

Every other foreign key passes through without a word.
"""

import difflib
from collections.abc import Iterable, Iterator
from typing import Any, Final

from schemas.architecture import Architecture
from tasks.resolve.merging import Document, Origin
from tasks.resolve.settings import Settings
from tasks.resolve.shipped import shipped_table

_CLOSE: Final = 0.84
_RENAMED: Final = {
    "sync_free_stage": "turbo_sync_free_moe_stage",
    "use_deepep": "use_turbo_deepep",
    "use_fsdp2": "use_torch_fsdp2",
    "sequence_length": "seq_length",
    "num_kv_heads": "num_query_groups",
    "num_key_value_heads": "num_query_groups",
    "num_hidden_layers": "num_layers",
    "intermediate_size": "ffn_hidden_size",
    "seq_len": "seq_length",
    "max_seq_len": "seq_length",
    "micro_batch": "micro_batch_size",
    "mbs": "micro_batch_size",
    "global_batch": "global_batch_size",
    "gbs": "global_batch_size",
    "tp": "tensor_model_parallel_size",
    "tp_size": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "pp_size": "pipeline_model_parallel_size",
    "ep": "expert_model_parallel_size",
    "ep_size": "expert_model_parallel_size",
    "cp": "context_parallel_size",
    "cp_size": "context_parallel_size",
    "vpp": "num_virtual_stages_per_pipeline_rank",
}
"""Names of other tools for keys of ours, too far from them for the eye of a spell checker."""

_UNMODELLED: Final = {
    "use_megatron_fsdp": "Megatron-FSDP is projected as if it were off",
    "use_custom_fsdp": "Megatron-FSDP is projected as if it were off",
    "optimizer_cpu_offload": "optimizer states are projected as if they stayed on the GPU",
    "cpu_offload": "activations are projected as if they stayed on the GPU",
    "offload": "activations are projected as if they stayed on the GPU",
    "overlap_moe_expert_parallel_comm": "expert communication is projected without this overlap",
    "use_turbo_mega_moe": "the fused MoE layer is projected as the ordinary one",
    "moe_enable_deepep": "Megatron's own DeepEP is not read; use_turbo_deepep is",
    "moe_expert_capacity_factor": "no token is projected as dropped",
    "rampup_batch_size": "the projection is of the final global batch",
    "enable_odc": "gradient reduction is projected without it",
}
"""Settings that move a real run and not the projection, and what is projected instead."""


def used_keys() -> frozenset[str]:
    """The settings Refold reads: the keys of the shipped framework defaults."""
    names = ("models/language_model.yaml", "modules/trainer_base.yaml")
    keys: set[str] = set()
    for name in names:
        keys |= shipped_table(name).keys()
    return frozenset(keys - {"extends"})


def misspellings(document: Document, path: tuple[str, ...]) -> Iterator[str]:
    """Warnings for the keys at `path` that look like misspellings of ones that are read."""
    used = used_keys()
    neighbours = _neighbours()
    present: Any = document.below(*path).values
    for key in present:
        if key in used or key in neighbours:
            continue
        wanted = _RENAMED.get(key) or _nearest(key, used)
        if wanted is not None and wanted not in present:
            where = document.origins.get((*path, key), Origin("", key))
            yield f"{where}: not a key that is read; did you mean {wanted}?"


def _nearest(key: str, used: Iterable[str]) -> str | None:
    near = difflib.get_close_matches(key.lower(), used, n=1, cutoff=_CLOSE)
    return near[0] if near else None


def _neighbours() -> frozenset[str]:
    """Settings of the framework that resemble ones Refold reads and are none of them."""
    return frozenset(shipped_table("neighbouring_keys.yaml")["keys"])


def unmodelled(settings: Settings) -> Iterator[str]:
    """Warnings for settings that move a real run and that no projection follows."""
    for key, instead in _UNMODELLED.items():
        if settings.raw(key) not in (None, False, 0, "", []):
            yield f"{settings.where(key)}: {instead}"
    if settings.raw("fp8") not in (None, False) and settings.raw("fp8_recipe") == "blockwise":
        yield f"{settings.where('fp8_recipe')}: blockwise scaling is projected as tensorwise"


def ineffective(settings: Settings, architecture: Architecture) -> Iterator[str]:
    """Warnings for settings that the framework itself ignores as the file stands."""
    if architecture.is_moe and not settings.flag("enable_primus_turbo"):
        for key in ("use_turbo_deepep", "turbo_sync_free_moe_stage"):
            if settings.raw(key) not in (None, False, 0):
                yield f"{settings.where(key)}: no effect without enable_primus_turbo: true"
    layers = settings.whole("recompute_num_layers", minimum=0)
    if layers is not None and layers > architecture.num_layers:
        yield (
            f"{settings.where('recompute_num_layers')}: {layers} is more than the"
            f" {architecture.num_layers} layers of the model; all of a stage are recomputed"
        )
    every = settings.raw("moe_layer_freq")
    if architecture.is_moe and isinstance(every, int) and every > architecture.num_layers:
        yield (
            f"{settings.where('moe_layer_freq')}: {every} is more than the"
            f" {architecture.num_layers} layers of the model; only the first is MoE"
        )
    if not settings.flag("use_precision_aware_optimizer"):
        for key in ("main_grads_dtype", "exp_avg_dtype", "exp_avg_sq_dtype", "main_params_dtype"):
            if settings.raw(key) not in (None, "fp32"):
                yield f"{settings.where(key)}: no effect without use_precision_aware_optimizer"


def long_context(settings: Settings, seq_length: int) -> Iterator[str]:
    """A warning when chunked attention would shorten what a query sees."""
    chunk = settings.whole("attention_chunk_size", minimum=0)
    if chunk and seq_length > chunk:
        yield (
            f"{settings.where('attention_chunk_size')}: attention in chunks of {chunk} is projected"
            f" as attention over all {seq_length} keys"
        )
