"""GEMM models behind one protocol: ROCm's Origami where it exists, our own `tile` elsewhere.

Both work at the profile's peak clock and data-sheet bandwidths and know nothing of derates.
"""

from typing import Literal, Protocol

from projection.gemm.tile import TileGemm
from projection.operations import Dtype
from schemas.errors import EnvironmentMissing
from schemas.gpu import GpuProfile

Backend = Literal["auto", "origami", "tile"]


class GemmModel(Protocol):
    """Peak-clock GEMM times on one GPU. `name` and `version` enter the signature."""

    name: str
    version: str

    def time_ms(
        self,
        m: int,
        n: int,
        k: int,
        *,
        batch: int = 1,
        dtype: Dtype = "bf16",
        layout: str = "TN",
    ) -> float:
        """Milliseconds of `batch` equal GEMMs m x n x k in one launch (a grouped GEMM)."""
        ...


def gemm_model(gpu: GpuProfile, backend: Backend = "auto") -> GemmModel:
    """The model of `gpu`'s GEMMs. `auto` is Origami on AMD GPUs it knows, when importable.

    Raises EnvironmentMissing when `origami` is asked for by name and cannot serve `gpu`.
    """
    if backend == "tile" or (backend == "auto" and gpu.vendor != "amd"):
        return TileGemm(gpu)
    from projection.gemm.origami import OrigamiGemm, unavailable_reason

    reason = unavailable_reason(gpu)
    if reason is None:
        return OrigamiGemm(gpu)
    if backend == "auto":
        return TileGemm(gpu)
    raise EnvironmentMissing(
        f"GEMM backend origami was asked for, but {reason}",
        hint="pip install 'refold[origami]' on an AMD target, or use backend tile",
    )


__all__ = ["Backend", "GemmModel", "TileGemm", "gemm_model"]
