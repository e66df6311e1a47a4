"""Memory that no tensor of the model explains, one named line each.

The numbers behind the lines, and where each comes from, are the fields of
`schemas.cluster.MemoryOverheads`; a cluster file may set them.
"""

from dataclasses import dataclass

from projection.degrees import Degrees
from schemas.cluster import MemoryOverheads
from schemas.trial import NormalTrial

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Overheads:
    """Bytes on one GPU that do not depend on what it computes."""

    framework_context: float
    communicator_buffers: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.framework_context + self.communicator_buffers


def overheads(settings: MemoryOverheads, communicators: int) -> Overheads:
    """The overheads of a job with `communicators`."""
    further = settings.further_communicator_gb * (communicators - 1)
    return Overheads(
        framework_context=settings.framework_context_gb * GIB,
        communicator_buffers=(settings.first_communicator_gb + further) * GIB * bool(communicators),
    )


def communicators(trial: NormalTrial, degrees: Degrees, world_size: int, *, is_moe: bool) -> int:
    """Communicators of one rank: the world's, and one per parallel group of more than one rank.

    The data-parallel group is that of data times context parallelism, which shards the optimizer;
    expert, expert-tensor and expert-data groups exist in a mixture of experts only.
    """
    sizes = [world_size, trial.tp, trial.cp, trial.pp, degrees.dp * trial.cp]
    if is_moe:
        sizes += [trial.ep, trial.etp, degrees.edp]
    return sum(size > 1 for size in sizes)
