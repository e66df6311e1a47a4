"""Memory of every pipeline rank, composed: static, in flight, passing through, overheads."""

from collections.abc import Sequence
from dataclasses import dataclass

from projection.memory.in_flight import InFlight, high_water
from projection.memory.overheads import GIB, overheads
from projection.memory.rank import ChunkMemory, RankParameters
from projection.memory.regime import BytesPerParameter, Sharding
from projection.memory.static import Fp8Weights, StaticMemory, fsdp_gather, static_memory
from projection.schedules import PipelineSchedule
from schemas.evaluation import RankMemory

PARAM_OPTIMIZER = ("weights", "gradients", "optimizer", "fp8_weights")
ACTIVATIONS = ("activations", "activation_checkpoints", "deferred_weight_gradients")
OVERHEADS = ("framework_context", "communicator_buffers", "fragmentation")
ESTIMATED = frozenset({"gradient_working_set", *OVERHEADS})
"""Lines that are estimates; all others follow from shapes and dtypes."""


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Memory per rank in 2^30 bytes. `heaviest` is the rank that decides whether a trial fits."""

    ranks: tuple[RankMemory, ...]
    heaviest: int

    @property
    def peak(self) -> RankMemory:
        """The heaviest rank."""
        return self.ranks[self.heaviest]

    def of(self, names: Sequence[str]) -> float:
        """Sum of the heaviest rank's components called `names`."""
        return sum(self.peak.components.get(name, 0.0) for name in names)


@dataclass(frozen=True, slots=True)
class MemoryContext:
    """What all ranks share."""

    regime: BytesPerParameter
    sharding: Sharding
    fp8: Fp8Weights
    world_size: int


def memory_report(
    ranks: Sequence[tuple[RankParameters, Sequence[ChunkMemory]]],
    schedule: PipelineSchedule,
    context: MemoryContext,
) -> MemoryReport:
    """Peak memory of every rank, and which is the heaviest (the first, when several are)."""
    rows = tuple(
        _rank_memory(rank, parameters, chunks, schedule, context)
        for rank, (parameters, chunks) in enumerate(ranks)
    )
    heaviest = max(range(len(rows)), key=lambda rank: (rows[rank].total_gb, -rank))
    return MemoryReport(rows, heaviest)


def _rank_memory(
    rank: int,
    parameters: RankParameters,
    chunks: Sequence[ChunkMemory],
    schedule: PipelineSchedule,
    context: MemoryContext,
) -> RankMemory:
    """One rank: components sum to the total of its worst phase."""
    static = static_memory(parameters, context.regime, context.sharding, context.fp8)
    alive = high_water(schedule.live_states[rank], chunks)
    passing = _transients(parameters, chunks, context)
    extra = overheads(context.world_size, alive.total + sum(passing.values()))
    phase = worst_phase(static, alive, passing)
    components = {
        "weights": static.weights,
        "gradients": static.gradients,
        "optimizer": static.optimizer,
        "fp8_weights": static.fp8_weights,
        "activations": alive.tensors,
        "activation_checkpoints": alive.checkpoints,
        "deferred_weight_gradients": alive.deferred,
        **passing,
        "framework_context": extra.framework_context,
        "communicator_buffers": extra.communicator_buffers,
        "fragmentation": extra.fragmentation,
    }
    in_gb = {name: size / GIB for name, size in components.items() if size}
    return RankMemory.model_construct(
        rank=rank, components=in_gb, total_gb=sum(in_gb.values()), phase=phase
    )


def phases(static: StaticMemory, alive: InFlight, passing: dict[str, float]) -> dict[str, float]:
    """Bytes of each phase, without overheads.

    init: weights, gradients and master weights exist. first_step: its forward and backward run
    before the moments are allocated. steady: every later step.
    """
    at_init = static.total - static.first_step
    working = alive.total + sum(passing.values())
    return {
        "steady": static.total + working,
        "first_step": at_init + working,
        "init": at_init,
    }


def worst_phase(static: StaticMemory, alive: InFlight, passing: dict[str, float]) -> str:
    """The phase that peaks: the steady one, since nothing is freed between steps."""
    sizes = phases(static, alive, passing)
    return max(sizes, key=lambda name: sizes[name])


def _transients(
    parameters: RankParameters, chunks: Sequence[ChunkMemory], context: MemoryContext
) -> dict[str, float]:
    """Bytes that come and go within a pass, at their worst on this rank.

    The loss's second copy of the logits is gone before the layers' backward needs its own buffers,
    so only the larger of the two counts.
    """
    layers = {
        "recompute_working_set": max(chunk.recompute for chunk in chunks),
        "expert_exchange": max(chunk.exchange for chunk in chunks),
        "gradient_working_set": max(chunk.gradients for chunk in chunks),
    }
    logits = max(chunk.logits for chunk in chunks)
    passing = layers if sum(layers.values()) >= logits else {"logits": logits}
    gather = fsdp_gather(parameters, context.regime, context.sharding, context.fp8)
    return {**passing, "fsdp_gather": gather}
