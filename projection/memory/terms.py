"""The numbers behind each line of a memory breakdown, as terms: a count times bytes each."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from projection.memory.layers import LayerMemory
from projection.memory.overheads import GIB
from projection.memory.rank import ENDS, ChunkMemory, RankParameters
from projection.memory.report import PARAM_OPTIMIZER, MemoryContext
from projection.memory.transients import DEEPEP_NETWORK_TOKENS, DEEPEP_NODE_TOKENS
from projection.operations import LayerWork, Parameters
from projection.work.chunk import ChunkPlan
from projection.work.layer import LayerKind
from projection.work.recompute import SelectiveRecompute
from schemas.evaluation import RankMemory


@dataclass(frozen=True, slots=True)
class Term:
    """`count` times `each` bytes of one thing. Negative where something is already free."""

    what: str
    count: float
    each: float

    @property
    def total(self) -> float:
        """Bytes."""
        return self.count * self.each


@dataclass(frozen=True, slots=True)
class Pieces:
    """What the terms of one rank are read from."""

    parameters: RankParameters
    context: MemoryContext
    chunks: tuple[ChunkMemory, ...]
    plans: tuple[ChunkPlan, ...]
    in_flight: tuple[int, ...]
    """Microbatches alive at the peak, by chunk."""
    waiting: tuple[int, ...]
    """Microbatches whose weight gradient is still to come, by chunk."""
    work_of: Callable[[LayerKind], LayerWork]
    layer_of: Callable[[LayerKind], LayerMemory]
    recompute: SelectiveRecompute
    memory: RankMemory


Terms = Callable[[Pieces], Iterator[Term]]


def _static(of: str, states: bool, vocabulary: bool) -> Terms:
    """Terms of one static line: parameters by bucket and what divides them, times bytes each."""

    def terms(pieces: Pieces) -> Iterator[Term]:
        regime, sharding = pieces.context.regime, pieces.context.sharding
        dense, experts = sharding.states if states else sharding.held
        each = {
            "weight": regime.weight,
            "gradient": regime.gradient,
            "optimizer": regime.optimizer,
        }[of]
        held: Parameters = pieces.parameters.vocabulary if vocabulary else pieces.parameters.layers
        yield Term(f"tensor-parallel parameters / {dense}", held.tp_sharded / dense, each)
        yield Term(f"replicated parameters / {dense}", held.replicated / dense, each)
        yield Term(f"routed experts' parameters / {experts}", held.routed_experts / experts, each)
        if of == "weight" and not vocabulary and pieces.context.fp8.primary:
            linear = pieces.parameters.linear_dense / dense
            linear += pieces.parameters.linear_experts / experts
            yield Term("linear weights kept in FP8 only", -linear, each)

    return terms


def _fp8_weights(pieces: Pieces) -> Iterator[Term]:
    copies, held = pieces.context.fp8.copies, pieces.context.sharding.held
    divisors = held if pieces.context.fp8.primary else (1, 1)
    parameters = pieces.parameters
    yield Term("linear weights of dense layers", parameters.linear_dense / divisors[0], copies)
    yield Term("linear weights of experts", parameters.linear_experts / divisors[1], copies)


def _name(kind: LayerKind) -> str:
    """How a layer of `kind` is called."""
    if kind.block in ENDS:
        return kind.block
    words = (["MTP"] if kind.block == "mtp" else []) + ["MoE" if kind.moe else "dense"]
    window = f" window {kind.window}" if kind.window else ""
    return f"{' '.join(words)} layer{window}"


def _saved(ends: bool) -> Terms:
    """Saved tensors of all microbatches in flight: of the vocabulary's ends, or of layers."""

    def terms(pieces: Pieces) -> Iterator[Term]:
        freed = 0.0
        for chunk, (plan, alive) in enumerate(zip(pieces.plans, pieces.in_flight, strict=True)):
            for entry in plan.counts:
                if (entry.kind.block in ENDS) != ends:
                    continue
                count = alive * (entry.count - entry.recomputed)
                work = pieces.work_of(entry.kind)
                dropped = frozenset() if ends else pieces.recompute.dropped(work)
                for module in work.modules:
                    for tensor in module.saved:
                        if tensor.name not in dropped:
                            where = f"{_name(entry.kind)}: {tensor.name}"
                            if len(pieces.plans) > 1:
                                where += f" (chunk {chunk})"
                            yield Term(where, count, tensor.num_bytes)
            freed += alive * pieces.chunks[chunk].vocabulary
        if ends:
            kept = pieces.memory.components.get("vocabulary_activations", 0.0) * GIB
            yield Term("freed by the loss's backward before the peak", -1, freed - kept)

    return terms


def _checkpoints(pieces: Pieces) -> Iterator[Term]:
    for plan, alive in zip(pieces.plans, pieces.in_flight, strict=True):
        if plan.runs:
            kept = pieces.layer_of(plan.runs[0].kinds[0]).kept_input
            yield Term("layer inputs kept", alive * plan.kept_inputs, kept)


def _deferred(pieces: Pieces) -> Iterator[Term]:
    for plan, waiting in zip(pieces.plans, pieces.waiting, strict=True):
        for entry in plan.counts:
            each = pieces.layer_of(entry.kind).for_weights
            yield Term(
                f"{_name(entry.kind)}: weight-gradient operands", waiting * entry.count, each
            )


def _at_peak(name: str, what: str) -> Terms:
    """A transient that is one number already."""

    def terms(pieces: Pieces) -> Iterator[Term]:
        yield Term(what, 1, pieces.memory.components[name] * GIB)

    return terms


def _gather(pieces: Pieces) -> Iterator[Term]:
    settings, regime = pieces.context.settings, pieces.context.regime
    if settings.fsdp_gather_gb is not None:
        yield Term("as the cluster file says", settings.fsdp_gather_gb, GIB)
        return
    sizes = pieces.parameters.unit_sizes
    for size in sizes[: settings.fsdp_gathered_units]:
        yield Term("parameters of a gathered unit", size, regime.weight)
    for linear in pieces.parameters.unit_linear[: settings.fsdp_gathered_units]:
        yield Term("their FP8 copies", linear, pieces.context.fp8.copies)
    yield Term("gradient of the largest unit", sizes[0], regime.weight)


def _deepep(pieces: Pieces) -> Iterator[Term]:
    settings, ranks = pieces.context.settings, pieces.context.deepep_ranks
    if settings.deepep_buffer_gb is not None or ranks is None:
        yield Term("as the cluster file says", settings.deepep_buffer_gb or 0.0, GIB)
        return
    architecture = pieces.context.architecture
    token = 2 * architecture.hidden_size + 12 * architecture.moe_router_topk
    peers = min(*ranks, 8)
    nodes = ranks[0] // peers
    slots = settings.deepep_channels * peers * DEEPEP_NODE_TOKENS
    yield Term("token slots of peers in the node", slots, token)
    if nodes > 1:
        slots = 2 * settings.deepep_channels * nodes * DEEPEP_NETWORK_TOKENS
        yield Term("token slots of other nodes, sent and received", slots, token)


def _context(pieces: Pieces) -> Iterator[Term]:
    yield Term("framework context", pieces.context.settings.framework_context_gb, GIB)


def _communicators(pieces: Pieces) -> Iterator[Term]:
    settings = pieces.context.settings
    yield Term("first communicator", settings.first_communicator_gb, GIB)
    further = pieces.context.communicators - 1
    yield Term("further communicators", further * settings.further_communicator_gb, GIB)


def _fragmentation(pieces: Pieces) -> Iterator[Term]:
    dynamic = sum(
        gb
        for name, gb in pieces.memory.components.items()
        if name not in PARAM_OPTIMIZER
        and name not in ("framework_context", "communicator_buffers", "fragmentation")
    )
    yield Term("activations and transients", pieces.context.settings.fragmentation, dynamic * GIB)


TERMS: Final = MappingProxyType(
    {
        "weights": _static("weight", states=False, vocabulary=False),
        "gradients": _static("gradient", states=False, vocabulary=False),
        "optimizer": _static("optimizer", states=True, vocabulary=False),
        "vocabulary_weights": _static("weight", states=False, vocabulary=True),
        "vocabulary_gradients": _static("gradient", states=False, vocabulary=True),
        "vocabulary_optimizer": _static("optimizer", states=True, vocabulary=True),
        "fp8_weights": _fp8_weights,
        "activations": _saved(ends=False),
        "vocabulary_activations": _saved(ends=True),
        "activation_checkpoints": _checkpoints,
        "deferred_weight_gradients": _deferred,
        "recompute_working_set": _at_peak("recompute_working_set", "net of what is free by then"),
        "expert_exchange": _at_peak("expert_exchange", "tokens sent and received, one layer"),
        "gradient_working_set": _at_peak("gradient_working_set", "the widest linear layer"),
        "logits": _at_peak("logits", "a second copy of the logits"),
        "fsdp_gather": _gather,
        "deepep_buffer": _deepep,
        "optimizer_step": _at_peak("optimizer_step", "temporaries of the step"),
        "weights_being_moved": _at_peak("weights_being_moved", "weights in their old place"),
        "framework_context": _context,
        "communicator_buffers": _communicators,
        "fragmentation": _fragmentation,
    }
)
