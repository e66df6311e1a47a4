"""What may be asked of a GEMM model, checked once for all of them."""

from typing import Final

from projection.operations import Dtype
from schemas.errors import UserError
from schemas.gpu import GpuProfile

MEMO_LIMIT: Final = 200_000
"""Shapes a model remembers before it starts afresh."""


def check_request(gpu: GpuProfile, m: int, n: int, k: int, batch: int, dtype: Dtype) -> None:
    """UserError when `gpu` has no such matrix instructions or a dimension is not positive."""
    if dtype == "fp8" and gpu.fp8_tflops is None:
        raise UserError(f"{gpu.name} has no FP8 matrix instructions", hint="use bf16 on it")
    if min(m, n, k, batch) < 1:
        raise UserError(f"a GEMM of {batch} x ({m} x {n} x {k}) is not a GEMM")
