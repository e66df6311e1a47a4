"""Parameters and per-microbatch bytes of every pipeline rank, chunk by chunk."""

from collections.abc import Callable
from dataclasses import dataclass

from projection.memory.layers import LayerMemory
from projection.operations import Parameters
from projection.parameters import add
from projection.stages import StageMap
from projection.work.chunk import ChunkPlan
from projection.work.layer import EMBEDDING, OUTPUT, LayerKind, kind_of_layer, kind_of_mtp
from schemas.architecture import Architecture

LayerOf = Callable[[LayerKind], LayerMemory]


@dataclass(frozen=True, slots=True)
class ChunkMemory:
    """One microbatch of one chunk, in bytes: what it keeps, and what passes through."""

    saved: float
    checkpoints: float
    """Inputs kept by full recomputation; the rest of `saved` is tensors."""
    for_weights: float
    recompute: float
    """Largest set brought back by recomputation at once, beyond what is kept."""
    exchange: float
    gradients: float
    logits: float


@dataclass(frozen=True, slots=True)
class RankParameters:
    """Parameters of one pipeline rank on one GPU."""

    parameters: Parameters
    linear_dense: float
    linear_experts: float
    """Linear weights (FP8 copies), by the group that reduces their gradients."""
    largest_units: tuple[float, float]
    """Parameters of the two largest FSDP units: gathered at once (current and prefetched)."""
    largest_linear: float
    """Linear weights of the two largest units."""
    copies: float
    """Parameters held here that another rank also counts: the second copy of a shared table."""


def chunk_memory(plan: ChunkPlan, layer_of: LayerOf) -> ChunkMemory:
    """Fold the units of a chunk under its recompute setting."""
    saved = for_weights = 0.0
    parts = []
    for entry in plan.counts:
        one = layer_of(entry.kind)
        parts.append(one)
        saved += (entry.count - entry.recomputed) * one.saved
        for_weights += entry.count * one.for_weights
    runs = [[layer_of(kind) for kind in run] for run in plan.runs]
    kept = runs[0][0].kept_input if runs else 0.0
    brought_back = [sum(layer.whole for layer in run) - kept for run in runs]
    checkpoints = plan.kept_inputs * kept
    return ChunkMemory(
        saved=saved + checkpoints,
        checkpoints=checkpoints,
        for_weights=for_weights,
        recompute=max(brought_back + [part.rerun for part in parts]),
        exchange=max(part.exchange for part in parts),
        gradients=max(part.gradients for part in parts),
        logits=max(part.logits for part in parts),
    )


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
    total = add(*(unit.parameters for unit in units)) if units else Parameters()
    own = stages.chunks[rank]
    embeds = any(chunk.embedding for chunk in own)
    tables = [Parameters()]
    copies = 0.0
    sizes = [unit.parameters.total for unit in units]
    if embeds:
        tables.append(layer_of(EMBEDDING).parameters)
    elif any(chunk.mtp for chunk in own):
        tables.append(layer_of(EMBEDDING).parameters)
        copies += tables[-1].total
    if any(chunk.output for chunk in own):
        head = layer_of(OUTPUT).parameters
        if architecture.tied_embeddings:
            table = layer_of(EMBEDDING).parameters
            final_norm = Parameters(replicated=head.replicated)
            has_table = len(tables) > 1
            tables.append(final_norm if has_table else add(final_norm, _vocabulary(table)))
            copies += 0.0 if has_table else _vocabulary(table).total
        else:
            tables.append(head)
    sizes += [table.total for table in tables]
    ranked = [*sorted(sizes, reverse=True), 0.0, 0.0]
    linear = [*sorted((unit.linear_weights for unit in units), reverse=True), 0.0, 0.0]
    expert_weights = sum(unit.parameters.routed_experts for unit in units)
    return RankParameters(
        parameters=add(total, *tables),
        linear_dense=max(0.0, sum(unit.linear_weights for unit in units) - expert_weights),
        linear_experts=expert_weights,
        largest_units=(ranked[0], ranked[1]),
        largest_linear=linear[0] + linear[1],
        copies=copies,
    )


def _vocabulary(table: Parameters) -> Parameters:
    """The vocabulary-parallel table alone, without learned positions."""
    return Parameters(tp_sharded=table.tp_sharded)
