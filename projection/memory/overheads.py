"""Memory that no tensor of the model explains, one named line each; all are estimates.

Every line has its source; none is calibrated to a particular run.
"""

from dataclasses import dataclass

GIB = 2**30
MIB = 2**20

FRAMEWORK_CONTEXT_BYTES = 1.3 * GIB
"""Driver context, loaded kernels and BLAS workspaces. Hugging Face's "model training anatomy" page
measures 1.34 GB after the first kernel on an otherwise empty GPU."""

COMMUNICATOR_BASE_BYTES = 96 * MIB
COMMUNICATOR_BYTES_PER_RANK = 2 * MIB
COMMUNICATOR_LIMIT_BYTES = 1 * GIB
"""Buffers of the collective library: 96 MiB + 2 MiB per rank, at most 1 GiB, the estimate of AMD's
Primus projection for RCCL."""

FRAGMENTATION = 0.05
"""Reserved but unallocated, as a fraction of what is allocated and freed every step. An
out-of-memory report of Llama-8B on MI325X (AMD-AGI/Primus #349) shows 12.5
GiB reserved and unallocated beside 229 GiB allocated: 5.5 %."""


@dataclass(frozen=True, slots=True)
class Overheads:
    """Bytes on one GPU."""

    framework_context: float
    communicator_buffers: float
    fragmentation: float


def overheads(world_size: int, dynamic_bytes: float) -> Overheads:
    """The estimates for a job of `world_size` GPUs that allocates `dynamic_bytes` every step."""
    buffers = min(
        COMMUNICATOR_BASE_BYTES + COMMUNICATOR_BYTES_PER_RANK * world_size,
        COMMUNICATOR_LIMIT_BYTES,
    )
    return Overheads(
        framework_context=FRAMEWORK_CONTEXT_BYTES,
        communicator_buffers=buffers if world_size > 1 else 0.0,
        fragmentation=FRAGMENTATION * dynamic_bytes,
    )
