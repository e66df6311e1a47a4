"""Norms and the residual stream: passes over [tokens, hidden], divided by tp only under SP."""

from projection import parameters
from projection.operations import MemoryPass, ModuleWork, SavedTensor
from projection.work.linear import BF16_BYTES
from projection.work.shape import WorkShape
from schemas.architecture import Architecture

RESIDUAL_PASSES_FORWARD = 3
"""Residual add: reads the branch and the stream, writes the stream."""
NORM_PASSES_FORWARD = 2
RESIDUAL_PASSES_BACKWARD = 3
"""The branch's and the stream's gradients are read, their sum is written."""
NORM_PASSES_BACKWARD = 3
"""Reads the output's gradient and the saved input, writes the input's gradient."""
NORM_KERNELS_BACKWARD = 2
"""The input's gradient with partial weight gradients, and their sum."""


def norm_and_residual(name: str, architecture: Architecture, shape: WorkShape) -> ModuleWork:
    """A norm over the hidden size and the residual add that feeds it.

    Saved: the norm's input, which is also the residual stream; its output is saved by the linear
    layer that reads it. The per-token statistics (4 B) are left out.
    """
    width = architecture.hidden_size
    block = float(BF16_BYTES * shape.residual_tokens * width)
    saved = [SavedTensor(f"{name}_input", block)]
    if shape.hidden_dropout:
        saved.append(SavedTensor(f"{name}_dropout_mask", block / BF16_BYTES))
    return ModuleWork(
        name,
        forward=(
            MemoryPass(name, block * NORM_PASSES_FORWARD),
            MemoryPass(f"{name}_residual", block * RESIDUAL_PASSES_FORWARD),
        ),
        input_grad=(
            MemoryPass(f"{name}_backward", block * NORM_PASSES_BACKWARD, NORM_KERNELS_BACKWARD),
            MemoryPass(f"{name}_residual_backward", block * RESIDUAL_PASSES_BACKWARD),
        ),
        weight_grad=(),
        saved=tuple(saved),
        parameters=parameters.norm(architecture, width),
    )


def plain_norm(
    name: str, architecture: Architecture, shape: WorkShape, width: int | None = None
) -> ModuleWork:
    """A norm with no residual add: after a block (sandwich), before the output head, on latents."""
    size = architecture.hidden_size if width is None else width
    block = float(BF16_BYTES * shape.residual_tokens * size)
    return ModuleWork(
        name,
        forward=(MemoryPass(name, block * NORM_PASSES_FORWARD),),
        input_grad=(
            MemoryPass(f"{name}_backward", block * NORM_PASSES_BACKWARD, NORM_KERNELS_BACKWARD),
        ),
        weight_grad=(),
        saved=(SavedTensor(f"{name}_input", block),),
        parameters=parameters.norm(architecture, size),
    )
