"""Parameters and per-microbatch bytes of every pipeline rank, chunk by chunk."""

from collections.abc import Callable
from dataclasses import dataclass

from projection.memory.layers import LayerMemory
from projection.operations import Parameters
from projection.parameters import add
from projection.stages import Chunk, StageMap
from projection.work.layer import EMBEDDING, OUTPUT, LayerKind, kind_of_layer, kind_of_mtp
from projection.work.recompute import FullRecompute, full
from schemas.architecture import Architecture
from schemas.trial import NormalTrial

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


def chunk_memory(
    architecture: Architecture, trial: NormalTrial, chunk: Chunk, layer_of: LayerOf
) -> ChunkMemory:
    """Fold the layers of `chunk` under `trial`'s recompute setting."""
    plan = full(trial, chunk)
    kept = [layer_of(kind_of_layer(architecture, layer)) for layer in chunk.layers]
    whole = dict(zip(chunk.layers, kept, strict=True))
    parts = list(kept)
    saved = sum(m.saved for layer, m in whole.items() if layer not in plan.layers)
    checkpoints = sum(whole[unit[0]].kept_input for unit in plan.units)
    for_weights = sum(m.for_weights for m in kept)
    recompute = max((_brought_back(unit, whole) for unit in plan.units), default=0.0)
    if chunk.mtp:
        mtp = layer_of(kind_of_mtp(architecture))
        parts.append(mtp)
        for_weights += chunk.mtp * mtp.for_weights
        if plan.mtp:
            checkpoints += chunk.mtp * mtp.kept_input
            recompute = max(recompute, mtp.whole - mtp.kept_input)
        else:
            saved += chunk.mtp * mtp.saved
    for present, kind in ((chunk.embedding, EMBEDDING), (chunk.output, OUTPUT)):
        if present:
            end = layer_of(kind)
            parts.append(end)
            saved += end.saved
            for_weights += end.for_weights
    return ChunkMemory(
        saved=saved + checkpoints,
        checkpoints=checkpoints,
        for_weights=for_weights,
        recompute=max([recompute, *(m.rerun for m in parts)]),
        exchange=max((m.exchange for m in parts), default=0.0),
        gradients=max((m.gradients for m in parts), default=0.0),
        logits=max((m.logits for m in parts), default=0.0),
    )


def _brought_back(unit: tuple[int, ...], whole: dict[int, LayerMemory]) -> float:
    """Bytes of a recomputed unit beyond its kept input."""
    return sum(whole[layer].whole for layer in unit) - whole[unit[0]].kept_input


def recomputes_nothing(plan: FullRecompute) -> bool:
    """Whether a chunk's full recomputation covers no layer at all."""
    return not plan.layers and not plan.mtp


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
