"""What Muon computes in its step beside the passes over its states: Newton-Schulz iterations.

Each matrix is orthogonalised by itself, as this GPU holds it (a tensor-parallel part, one expert),
which is also what memory assumes (`memory.transients.optimizer_step`). Tables of the vocabulary and
vectors are stepped by Adam (Moonlight, arXiv 2502.16982, section 2).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from projection.kernels import KernelModels
from projection.memory.regime import Sharding
from projection.operations import Gemm, LayerWork

NEWTON_SCHULZ_STEPS: Final = 5
"""Moonlight, section 2.1."""
VOCABULARY: Final = frozenset({"embedding", "mtp_embedding", "logits"})
EXPERTS: Final = frozenset({"experts_up", "experts_down"})


@dataclass(frozen=True, slots=True)
class Matrices:
    """`count` equal weight matrices of one GPU."""

    rows: int
    columns: int
    count: int
    experts: bool


def matrices_of(work: LayerWork, layers: int) -> tuple[Matrices, ...]:
    """The matrices of `layers` layers: what their weight gradients are of."""
    return tuple(
        Matrices(op.m, op.n, op.batch * layers, module.name in EXPERTS)
        for module in work.modules
        if module.name not in VOCABULARY
        for op in module.weight_grad
        if isinstance(op, Gemm)
    )


def newton_schulz_ms(rows: int, columns: int, models: KernelModels) -> float:
    """Orthogonalisation of one matrix in bf16.

    A step of X[s, l], s ≤ l, is A = X Xᵀ, its square, and (b A + c A²) X.
    """
    short, long = sorted((rows, columns))
    gemms = (
        Gemm("muon_gram", short, short, long),
        Gemm("muon_square", short, short, short, layout="NN"),
        Gemm("muon_update", short, long, short, layout="NN"),
    )
    return NEWTON_SCHULZ_STEPS * sum(models.gemm_ms(op) for op in gemms)


def orthogonalisation_ms(
    matrices: Iterable[Matrices], sharding: Sharding, models: KernelModels
) -> float:
    """Newton-Schulz of one GPU's matrices, in ms.

    Where optimizer states are sharded, each data-parallel rank takes its share of whole matrices,
    and at least one of the largest.
    """
    total = largest = 0.0
    dense, expert = sharding.states
    for group in matrices:
        one = newton_schulz_ms(group.rows, group.columns, models)
        total += one * group.count / (expert if group.experts else dense)
        largest = max(largest, one)
    return max(total, largest)
