"""A chunk as memory and time both see it: how many units of each kind, and which are recomputed."""

from dataclasses import dataclass

from projection.hashed import HashedOnce
from projection.stages import Chunk
from projection.work.layer import EMBEDDING, OUTPUT, LayerKind, kind_of_layer, kind_of_mtp
from projection.work.recompute import full
from schemas.architecture import Architecture
from schemas.trial import NormalTrial


@dataclass(frozen=True, slots=True)
class KindCount:
    """How many units of one kind a chunk has, and how many of them are recomputed in full."""

    kind: LayerKind
    count: int
    recomputed: int


@dataclass(frozen=True, slots=True)
class ChunkPlan(HashedOnce):
    """The units of a chunk by kind, and the recomputed runs of layers behind each kept input."""

    __hash__ = HashedOnce.__hash__

    counts: tuple[KindCount, ...]
    kept_inputs: int
    """Inputs that full recomputation keeps: one per run."""
    runs: tuple[tuple[LayerKind, ...], ...]
    """The distinct runs, by the kinds of their layers."""


def chunk_plan(architecture: Architecture, trial: NormalTrial, chunk: Chunk) -> ChunkPlan:
    """The plan of `chunk` under the recompute setting of `trial`."""
    plan = full(trial, chunk)
    counts: dict[LayerKind, list[int]] = {}
    kinds = {layer: kind_of_layer(architecture, layer) for layer in chunk.layers}
    for layer, kind in kinds.items():
        entry = counts.setdefault(kind, [0, 0])
        entry[0] += 1
        entry[1] += layer in plan.layers
    runs = [tuple(kinds[layer] for layer in unit) for unit in plan.units]
    if chunk.mtp:
        kind = kind_of_mtp(architecture)
        counts[kind] = [chunk.mtp, chunk.mtp if plan.mtp else 0]
        runs += [(kind,)] * counts[kind][1]
    if chunk.embedding:
        counts[EMBEDDING] = [1, 0]
    if chunk.output:
        counts[OUTPUT] = [1, 0]
    return ChunkPlan(
        counts=tuple(KindCount(kind, *entry) for kind, entry in counts.items()),
        kept_inputs=len(runs),
        runs=tuple(dict.fromkeys(runs)),
    )
