"""Parameters and per-microbatch bytes of every pipeline rank, chunk by chunk."""

from collections.abc import Callable
from dataclasses import dataclass

from projection.memory.layers import LayerMemory
from projection.operations import Parameters
from projection.parameters import add
from projection.stages import Chunk, StageMap
from projection.work.chunk import ChunkPlan
from projection.work.layer import EMBEDDING, OUTPUT, LayerKind, kind_of_layer, kind_of_mtp
from schemas.architecture import Architecture

LayerOf = Callable[[LayerKind], LayerMemory]


@dataclass(frozen=True, slots=True)
class ChunkMemory:
    """One microbatch of one chunk, in bytes: what it keeps, and what passes through."""

    tensors: float
    """Saved tensors of its layers."""
    vocabulary: float
    """Saved tensors of the embedding, the output head and the loss."""
    checkpoints: float
    """Inputs kept by full recomputation."""
    for_weights: float
    rerun: float
    """Largest set that selective recomputation brings back in one layer."""
    recompute: float
    """Largest set brought back at once by any recomputation, less what backward has freed by then;
    for schedules that split the backward pass, `recompute_split`."""
    recompute_split: float
    exchange: float
    gradients: float
    logits: float
    loss: float
    """Of `vocabulary`, what the backward of the output head frees before the layers' begins."""
    loss_split: float
    """The same less the operands its weight gradient still waits for."""

    @property
    def saved(self) -> float:
        """All that is kept from forward to backward."""
        return self.tensors + self.vocabulary + self.checkpoints


@dataclass(frozen=True, slots=True)
class RankParameters:
    """Parameters of one pipeline rank on one GPU."""

    layers: Parameters
    """Decoder layers, MTP depths and the final norm."""
    vocabulary: Parameters
    """The token embedding, learned positions and the output head."""
    parameters: Parameters
    """All of them."""
    linear_dense: float
    linear_experts: float
    """Linear weights (FP8 copies), by the group that reduces their gradients."""
    unit_sizes: tuple[float, ...]
    """Parameters of the largest FSDP units, largest first."""
    unit_linear: tuple[float, ...]
    """Linear weights of the units that have most, largest first."""
    largest_matrix: tuple[int, int]
    copies: float
    """Parameters held here that another rank also counts: the second copy of a shared table."""


LARGEST_UNITS = 8
"""FSDP units kept by size: more are never gathered at once (`fsdp_gathered_units`)."""


def chunk_memory(plan: ChunkPlan, layer_of: LayerOf) -> ChunkMemory:
    """Fold the units of a chunk under its recompute setting."""
    tensors = vocabulary = for_weights = loss = loss_split = 0.0
    parts = []
    for entry in plan.counts:
        one = layer_of(entry.kind)
        parts.append(one)
        kept = (entry.count - entry.recomputed) * one.saved
        for_weights += entry.count * one.for_weights
        if entry.kind.block in ENDS:
            vocabulary += kept
        else:
            tensors += kept
        if entry.kind.block == "output":
            loss, loss_split = kept, max(0.0, kept - one.for_weights)
    recompute, recompute_split = _brought_back(plan, layer_of)
    return ChunkMemory(
        tensors=tensors,
        vocabulary=vocabulary,
        checkpoints=plan.kept_inputs * _kept_input(plan, layer_of),
        for_weights=for_weights,
        rerun=max((part.rerun for part in parts), default=0.0),
        recompute=recompute,
        recompute_split=recompute_split,
        exchange=max((part.exchange for part in parts), default=0.0),
        gradients=max((part.gradients for part in parts), default=0.0),
        logits=max((part.logits for part in parts), default=0.0),
        loss=loss,
        loss_split=loss_split,
    )


ENDS = ("embedding", "output")


def _kept_input(plan: ChunkPlan, layer_of: LayerOf) -> float:
    """Bytes of one input that full recomputation keeps: the hidden states, alike for all layers."""
    return layer_of(plan.runs[0].kinds[0]).kept_input if plan.runs else 0.0


def _brought_back(plan: ChunkPlan, layer_of: LayerOf) -> tuple[float, float]:
    """The most that is alive beyond what backward started with, while a run is recomputed.

    A run is brought back whole beside its kept input. Backward goes from the last layer to the
    first, so by then it has freed the tensors of the later layers and the inputs of the later runs
    (the first figure), unless it is split (the second). May be negative: then recomputation never
    decides the peak.
    """
    if not plan.runs:
        return 0.0, 0.0
    kept = _kept_input(plan, layer_of)
    freed, split = [], []
    for run in plan.runs:
        whole = -kept
        for kind, count in run.counts:
            whole += count * layer_of(kind).whole
        later = run.inputs_after * kept
        for kind, count in run.kept_after:
            later += count * layer_of(kind).saved
        freed.append(whole - later)
        split.append(whole)
    return max(freed), max(split)


def rank_parameters(
    architecture: Architecture, stages: StageMap, rank: int, layer_of: LayerOf
) -> RankParameters:
    """Parameters of `rank`: its layers, and the ends it holds.

    Tied embeddings are one table where both ends share a rank, and two copies (kept equal by an
    all-reduce) where they do not. MTP depths embed their own tokens: a rank with them holds the
    table too.
    """
    units: list[LayerMemory] = []
    for chunk in stages.chunks[rank]:
        units += [layer_of(kind_of_layer(architecture, layer)) for layer in chunk.layers]
        units += [layer_of(kind_of_mtp(architecture))] * chunk.mtp
    own = stages.chunks[rank]
    tables, copies = _tables(architecture, own, layer_of)
    final_norm = Parameters()
    if any(chunk.output for chunk in own):
        final_norm = Parameters(replicated=layer_of(OUTPUT).parameters.replicated)
    sizes = [unit.parameters.total for unit in units] + [table.total for table in tables]
    linear = sum(unit.linear_weights for unit in units)
    experts = sum(unit.parameters.routed_experts for unit in units)
    layers = add(final_norm, *(unit.parameters for unit in units))
    vocabulary = add(*tables)
    return RankParameters(
        layers=layers,
        vocabulary=vocabulary,
        parameters=add(layers, vocabulary),
        linear_dense=max(0.0, linear - experts),
        linear_experts=experts,
        unit_sizes=_largest(sizes),
        unit_linear=_largest([unit.linear_weights for unit in units]),
        largest_matrix=max(
            (unit.largest_matrix for unit in units), key=lambda m: m[0] * m[1], default=(0, 0)
        ),
        copies=copies,
    )


def _largest(sizes: list[float]) -> tuple[float, ...]:
    """The largest of `sizes`, largest first."""
    return tuple(sorted(sizes, reverse=True)[:LARGEST_UNITS])


def _tables(
    architecture: Architecture, own: tuple[Chunk, ...], layer_of: LayerOf
) -> tuple[list[Parameters], float]:
    """The vocabulary's tables on one rank, and how much of them another rank counts too."""
    tables: list[Parameters] = []
    copies = 0.0
    table = layer_of(EMBEDDING).parameters
    embeds = any(chunk.embedding for chunk in own)
    if embeds or any(chunk.mtp for chunk in own):
        tables.append(table)
        copies += 0.0 if embeds else table.total
    if any(chunk.output for chunk in own):
        if not architecture.tied_embeddings:
            tables.append(_vocabulary(layer_of(OUTPUT).parameters))
        elif not tables:
            tables.append(_vocabulary(table))
            copies += tables[-1].total
    return tables, copies


def _vocabulary(table: Parameters) -> Parameters:
    """The vocabulary-parallel table alone, without learned positions or the final norm."""
    return Parameters(tp_sharded=table.tp_sharded)
