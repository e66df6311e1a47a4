"""Memory of every pipeline rank, composed: static, in flight, passing through, overheads."""

from collections.abc import Sequence
from dataclasses import dataclass

from projection.memory.in_flight import InFlight, high_water
from projection.memory.overheads import GIB, overheads
from projection.memory.rank import ChunkMemory, RankParameters
from projection.memory.regime import BytesPerParameter, Sharding
from projection.memory.static import Fp8Weights, StaticMemory, static_memory
from projection.memory.transients import (
    deepep_buffer,
    fsdp_gather,
    init_bytes,
    layer_transients,
    optimizer_step,
    replaced,
)
from projection.schedules import PipelineSchedule
from schemas.architecture import Architecture
from schemas.cluster import MemoryOverheads
from schemas.evaluation import RankMemory
from schemas.workload import Precision

PARAM_OPTIMIZER = (
    "weights",
    "gradients",
    "optimizer",
    "vocabulary_weights",
    "vocabulary_gradients",
    "vocabulary_optimizer",
    "fp8_weights",
)
ACTIVATIONS = (
    "activations",
    "vocabulary_activations",
    "activation_checkpoints",
    "deferred_weight_gradients",
)
TRANSIENTS = (
    "recompute_working_set",
    "expert_exchange",
    "gradient_working_set",
    "logits",
    "fsdp_gather",
    "deepep_buffer",
    "optimizer_step",
    "weights_being_moved",
)
OVERHEADS = ("framework_context", "communicator_buffers", "fragmentation")


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

    architecture: Architecture
    precision: Precision
    regime: BytesPerParameter
    sharding: Sharding
    fp8: Fp8Weights
    settings: MemoryOverheads
    communicators: int
    deepep_ranks: tuple[int, int] | None = None
    """(ep, ranks per node) where tokens travel by DeepEP."""


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


@dataclass(frozen=True, slots=True)
class Moment:
    """One moment of a training step on one rank, in bytes."""

    alive: InFlight
    passing: dict[str, float]
    """Transients of that moment, by line."""
    freed: float
    """Of `alive.vocabulary`, what the loss's backward has freed by then."""

    @property
    def total(self) -> float:
        """Activations and transients."""
        return self.alive.total - self.freed + sum(self.passing.values())


def worst_moment(
    chunks: Sequence[ChunkMemory], alive: InFlight, settings: MemoryOverheads, *, splits: bool
) -> Moment:
    """When a rank holds most: at the loss, or in the backward of one of its chunks.

    At the loss the logits exist twice. When the layers' backward begins, what the loss had saved is
    free (it is its own microbatch's); recomputation reaches its run later, when the layers behind
    it are done (`ChunkMemory.recompute`).
    """
    moments = [Moment(alive, {"logits": _logits(chunks, settings)}, 0.0)]
    for chunk, whole in zip(chunks, alive.state.whole, strict=True):
        runs_backward = whole > 0
        freed = (chunk.loss_split if splits else chunk.loss) if runs_backward else 0.0
        again = chunk.recompute if runs_backward and not splits else chunk.recompute_split
        moments.append(Moment(alive, layer_transients(settings, chunk, chunk.rerun), freed))
        if again > chunk.rerun:
            moments.append(Moment(alive, layer_transients(settings, chunk, again), freed))
    return max(moments, key=lambda moment: moment.total)


def _logits(chunks: Sequence[ChunkMemory], settings: MemoryOverheads) -> float:
    """A second copy of the logits, on the rank that has them."""
    derived = max(chunk.logits for chunk in chunks)
    return replaced(derived, settings.logits_gb) if derived else 0.0


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
    moment = worst_moment(chunks, alive, context.settings, splits=schedule.splits_backward)
    standing = _standing(parameters, context)
    step = replaced(
        optimizer_step(parameters, context.precision, context.regime, context.sharding),
        context.settings.optimizer_step_gb,
    )
    working = moment.total + sum(standing.values())
    moved = _moved_weights(parameters, context, len(chunks))
    phases = phase_bytes(static, working, step, moved)
    extra = overheads(context.settings, context.communicators)
    beside = extra.total
    grown = 1 + context.settings.fragmentation
    totals = {name: held + dynamic * grown + beside for name, (held, dynamic) in phases.items()}
    phase = max(totals, key=totals.__getitem__)
    components = _static_lines(static, phase, moved)
    if phase in WORKING_PHASES:
        components |= _working_lines(moment, standing)
    elif phase == "optimizer_step":
        components["optimizer_step"] = step
    components |= {
        "framework_context": extra.framework_context,
        "communicator_buffers": extra.communicator_buffers,
        "fragmentation": context.settings.fragmentation * phases[phase][1],
    }
    in_gb = {name: size / GIB for name, size in components.items() if size}
    return RankMemory.model_construct(
        rank=rank,
        components=in_gb,
        total_gb=sum(in_gb.values()),
        phase=phase,
        phases_gb={name: total / GIB for name, total in totals.items()},
    )


WORKING_PHASES = ("steady", "first_step")


def phase_bytes(
    static: StaticMemory, working: float, step: float, moved: float
) -> dict[str, tuple[float, float]]:
    """Bytes of each phase without overheads: (what stays, what is allocated and freed in it).

    init: the model is built, `moved` weights into their buffer. checkpoint_load: every state exists
    and is read into place (PyTorch's distributed checkpoint loads in place). first_step: its
    forward and backward run before the moments exist. steady: forward and backward of every later
    step. optimizer_step: after them, nothing is alive but what the optimizer allocates.
    """
    held = static.total
    return {
        "steady": (held, working),
        "first_step": (held - static.moments, working),
        "optimizer_step": (held, step),
        "checkpoint_load": (held, 0.0),
        "init": (init_bytes(static, moved), 0.0),
    }


def _static_lines(static: StaticMemory, phase: str, moved: float) -> dict[str, float]:
    """What lives through a phase."""
    lines = {
        "weights": static.weights,
        "gradients": static.gradients,
        "vocabulary_weights": static.vocabulary_weights,
        "vocabulary_gradients": static.vocabulary_gradients,
    }
    if phase == "init":
        # A phase peaks by what is larger than anything later: only the move is.
        return lines | {"weights_being_moved": moved}
    return lines | {
        "optimizer": static.optimizer,
        "vocabulary_optimizer": static.vocabulary_optimizer,
        "fp8_weights": static.fp8_weights,
    }


def _moved_weights(parameters: RankParameters, context: MemoryContext, num_chunks: int) -> float:
    """Weights that exist twice while the last buffer is filled: of one chunk, experts last.

    The distributed optimizer keeps weights in contiguous buffers, dense and expert parameters
    apart, and fills them one after the other when the gradients' buffers are already there
    (Megatron-Core, `distributed_data_parallel.py` and `param_and_grad_buffer.py`).
    """
    if context.sharding.shards_weights or not context.sharding.shards_optimizer:
        return 0.0
    held = parameters.parameters
    last = held.routed_experts or held.dense
    return context.regime.weight * last / num_chunks


def _working_lines(moment: Moment, standing: dict[str, float]) -> dict[str, float]:
    """What forward and backward hold at their worst."""
    return {
        "activations": moment.alive.tensors,
        "vocabulary_activations": moment.alive.vocabulary - moment.freed,
        "activation_checkpoints": moment.alive.checkpoints,
        "deferred_weight_gradients": moment.alive.deferred,
        **moment.passing,
        **standing,
    }


def _standing(parameters: RankParameters, context: MemoryContext) -> dict[str, float]:
    """Buffers that are there through all of forward and backward."""
    settings = context.settings
    gather = fsdp_gather(
        parameters, context.regime, context.sharding, context.fp8, settings.fsdp_gathered_units
    )
    lines = {"fsdp_gather": replaced(gather, settings.fsdp_gather_gb)} if gather else {}
    if context.deepep_ranks is not None:
        ep, per_node = context.deepep_ranks
        buffer = deepep_buffer(context.architecture, ep, per_node, settings.deepep_channels)
        lines["deepep_buffer"] = replaced(buffer, settings.deepep_buffer_gb)
    return lines
