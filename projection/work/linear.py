"""A linear layer on one GPU: its three GEMMs, its FP8 casts, and tensor-parallel collectives.

Backward is two GEMMs of their own (dgrad and wgrad), so that split-backward schedules know both.
"""

from dataclasses import dataclass
from typing import Literal

from projection.operations import Collective, Dtype, Gemm, MemoryPass, Operation
from projection.work.shape import WorkShape

BF16_BYTES = 2
FP8_CAST_BYTES = 4
"""A cast reads bf16 (2 B) and writes an FP8 copy and its transpose (1 B each) per element."""


@dataclass(frozen=True, slots=True)
class Linear:
    """Y[rows, outputs] = X[rows, inputs] Wᵀ, `batch` times (one per local expert)."""

    name: str
    rows: int
    outputs: int
    inputs: int
    batch: int = 1
    dtype: Dtype = "bf16"
    grouped: bool = True
    """Whether `batch` runs as one grouped kernel; else one kernel after the other."""
    experts: bool = False
    """Whether the weights are experts'; a dense layer runs plain GEMMs."""

    @property
    def weights(self) -> int:
        """Weights on this GPU."""
        return self.outputs * self.inputs * self.batch


def forward(linear: Linear, shape: WorkShape) -> tuple[Operation, ...]:
    """The input's cast (FP8), then Y = X Wᵀ."""
    dims = linear.rows, linear.outputs, linear.inputs
    cast = _cast(linear, linear.inputs, "input", shape)
    return cast + _weight_cast(linear, shape) + _gemms(linear, linear.name, dims, "TN")


def input_grad(linear: Linear, shape: WorkShape) -> tuple[Operation, ...]:
    """The gradient's cast (FP8), and that of weights gathered once more, then dX = dY W."""
    dims = linear.rows, linear.inputs, linear.outputs
    cast = _cast(linear, linear.outputs, "grad", shape)
    if shape.grad_accumulation == "sharded":
        cast += _weight_cast(linear, shape)
    return cast + _gemms(linear, f"{linear.name}_dgrad", dims, "NN")


def weight_grad(linear: Linear, shape: WorkShape) -> tuple[Operation, ...]:
    """dW = dYᵀ X, added to the main gradient."""
    dims = linear.outputs, linear.inputs, linear.rows
    accumulate = MemoryPass(
        f"{linear.name}_grad_accumulate",
        accumulation_bytes(shape) * linear.weights,
        launches=0 if shape.grad_accumulation == "fused" else 1,
    )
    return (*_gemms(linear, f"{linear.name}_wgrad", dims, "NT"), accumulate)


def accumulation_bytes(shape: WorkShape) -> float:
    """HBM bytes per weight, per microbatch, beyond the bf16 result the wgrad GEMM writes.

    fused: the GEMM reads and writes fp32 (8 B) instead of writing bf16 (2 B). separate: a kernel
    reads bf16, reads and writes fp32. sharded: FSDP copies the bf16 gradient into its
    reduce-scatter buffer (read and write).
    """
    return {"fused": 6.0, "separate": 10.0, "sharded": 4.0}[shape.grad_accumulation]


def _gemms(
    linear: Linear, name: str, dims: tuple[int, int, int], layout: Literal["NN", "NT", "TN"]
) -> tuple[Operation, ...]:
    """One of the layer's GEMMs: as one kernel, or one per expert where no kernel groups them."""
    if linear.grouped:
        call: Literal["linear", "grouped"] = "grouped" if linear.experts else "linear"
        return (Gemm(name, *dims, linear.batch, linear.dtype, layout, call),)
    return (Gemm(name, *dims, 1, linear.dtype, layout, "linear"),) * linear.batch


def _weight_cast(linear: Linear, shape: WorkShape) -> tuple[Operation, ...]:
    """Quantisation of weights whose FP8 copies are not kept.

    Layers keep the copies that the optimizer step leaves, with two exceptions: weights that FSDP
    gathers are bf16, and cast after every gather; Primus-Turbo's grouped kernels (sync-free stage 2
    and up) are handed bf16 weights and quantise them in every forward pass.
    """
    if linear.dtype != "fp8":
        return ()
    if shape.grad_accumulation == "sharded":
        return (_pass_over(linear, linear.weights, "weight", shape),)
    if not (linear.experts and shape.sync_free_stage >= 2):
        return ()
    reads = 2 * BF16_BYTES
    return (MemoryPass(f"{linear.name}_weight_cast", linear.weights * float(reads + 1), 2),)


def _cast(linear: Linear, width: int, what: str, shape: WorkShape) -> tuple[Operation, ...]:
    """Quantisation of a [rows, width] operand; nothing unless the layer runs in FP8."""
    if linear.dtype != "fp8":
        return ()
    return (_pass_over(linear, linear.rows * width * linear.batch, what, shape),)


def _pass_over(linear: Linear, elements: int, what: str, shape: WorkShape) -> MemoryPass:
    """bf16 read and FP8 written; current scaling reads it once more, for the largest."""
    reads = BF16_BYTES if shape.fp8_amax_pass else 0
    passes = 2 if shape.fp8_amax_pass else 1
    return MemoryPass(f"{linear.name}_{what}_cast", elements * (FP8_CAST_BYTES + reads), passes)


@dataclass(frozen=True, slots=True)
class TensorParallel:
    """Collectives around a tensor-parallel block, by where they run."""

    forward: tuple[Collective, ...] = ()
    input_grad: tuple[Collective, ...] = ()


def enter_parallel(name: str, width: int, shape: WorkShape) -> TensorParallel:
    """Entering a column-parallel layer with a [tokens, width] input.

    Under sequence parallelism: gather the input; backward gathers it again for the weight gradient
    (behind the dgrad GEMM) and reduce-scatters the input's gradient. Without: the input is already
    whole and its gradient is all-reduced (Korthikanti et al. 2022, §4.2.2).
    """
    if shape.tp == 1:
        return TensorParallel()
    size = BF16_BYTES * shape.tokens * width
    if not shape.sequence_parallel:
        grad = Collective(f"{name}_allreduce", "allreduce", size, "tp", overlappable=True)
        return TensorParallel(input_grad=(grad,))
    gather = Collective(f"{name}_allgather", "allgather", size, "tp", shape.tp_comm_overlap)
    again = Collective(f"{name}_allgather", "allgather", size, "tp", overlappable=True)
    scatter = Collective(f"{name}_reduce_scatter", "reduce_scatter", size, "tp", overlappable=True)
    return TensorParallel(forward=(gather,), input_grad=(again, scatter))


def leave_parallel(name: str, width: int, shape: WorkShape) -> TensorParallel:
    """Leaving a row-parallel layer with a [tokens, width] partial sum.

    Under sequence parallelism: reduce-scatter, and gather the gradient in backward. Without:
    all-reduce, and the gradient is already whole.
    """
    if shape.tp == 1:
        return TensorParallel()
    size = BF16_BYTES * shape.tokens * width
    if not shape.sequence_parallel:
        reduce = Collective(f"{name}_allreduce", "allreduce", size, "tp", shape.tp_comm_overlap)
        return TensorParallel(forward=(reduce,))
    scatter = Collective(
        f"{name}_reduce_scatter", "reduce_scatter", size, "tp", shape.tp_comm_overlap
    )
    gather = Collective(f"{name}_allgather", "allgather", size, "tp", shape.tp_comm_overlap)
    return TensorParallel(forward=(scatter,), input_grad=(gather,))
