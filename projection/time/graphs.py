"""Which modules a CUDA graph replays: their kernels cost the host nothing to launch.

Scopes are those of Megatron's `cuda_graph_scope`, with `layer` where whole layers are captured.
"""

from collections.abc import Collection
from typing import Final

from schemas.workload import GraphScope

EAGER: Final = frozenset({"embedding", "final_norm", "logits", "loss"})
"""Outside of the layers."""
ROUTED: Final = frozenset(
    {"dispatch", "experts_up", "experts_activation", "experts_down", "combine"}
)
"""Modules whose shapes follow from the routing: a graph of a layer leaves them out."""
SCOPES: Final[dict[GraphScope, frozenset[str]]] = {
    "attn": frozenset(
        {
            *("attention_norm", "qkv", "latent_down", "latent_up"),
            *("core_attention", "attention_projection"),
        }
    ),
    "mlp": frozenset({"mlp_norm", "mlp_up", "mlp_activation", "mlp_down"}),
    "moe_router": frozenset(
        {"mlp_norm", "router", "shared_up", "shared_activation", "shared_down"}
    ),
}
"""Modules of each scope that names some; what `moe_preprocess` captures is part of the dispatch."""


def replayed(scopes: Collection[GraphScope], module: str) -> bool:
    """Whether graphs of `scopes` hold `module`."""
    if "full_iteration" in scopes:
        return True
    if "layer" in scopes and module not in ROUTED | EAGER:
        return True
    return any(module in SCOPES.get(scope, ()) for scope in scopes)
