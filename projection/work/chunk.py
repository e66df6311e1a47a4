"""A chunk as memory and time both see it: how many units of each kind, and which are recomputed."""

from collections import Counter
from collections.abc import Sequence
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
class Run:
    """Layers recomputed together from one kept input, and what backward is done with by then."""

    kinds: tuple[LayerKind, ...]
    counts: tuple[tuple[LayerKind, int], ...]
    """The same, how many of each."""
    kept_after: tuple[tuple[LayerKind, int], ...]
    """Later layers that keep their tensors, by kind: their backward has run."""
    inputs_after: int
    """Kept inputs of later runs: used up."""


@dataclass(frozen=True, slots=True)
class ChunkPlan(HashedOnce):
    """The units of a chunk by kind, and the recomputed runs of layers behind each kept input."""

    __hash__ = HashedOnce.__hash__

    counts: tuple[KindCount, ...]
    kept_inputs: int
    """Inputs that full recomputation keeps: one per run."""
    runs: tuple[Run, ...]
    """Of the runs with the same kinds of layers, the last: backward reaches it first."""


def chunk_plan(architecture: Architecture, trial: NormalTrial, chunk: Chunk) -> ChunkPlan:
    """The plan of `chunk` under the recompute setting of `trial`."""
    plan = full(trial, chunk)
    counts: dict[LayerKind, list[int]] = {}
    kinds = {layer: kind_of_layer(architecture, layer) for layer in chunk.layers}
    for layer, kind in kinds.items():
        entry = counts.setdefault(kind, [0, 0])
        entry[0] += 1
        entry[1] += layer in plan.layers
    units = [tuple(kinds[layer] for layer in unit) for unit in plan.units]
    starts = [unit[0] for unit in plan.units]
    if chunk.mtp:
        kind = kind_of_mtp(architecture)
        counts[kind] = [chunk.mtp, chunk.mtp if plan.mtp else 0]
        units += [(kind,)] * counts[kind][1]
        starts += [architecture.num_layers] * counts[kind][1]
    if chunk.embedding:
        counts[EMBEDDING] = [1, 0]
    if chunk.output:
        counts[OUTPUT] = [1, 0]
    kept = [(layer, kind) for layer, kind in kinds.items() if layer not in plan.layers]
    if not plan.mtp:
        kept += [(architecture.num_layers, kind_of_mtp(architecture))] * chunk.mtp
    runs = {}
    for index, unit in enumerate(units):
        later = [kind for layer, kind in kept if layer > starts[index]]
        runs[unit] = Run(unit, _tally(unit), _tally(later), len(units) - index - 1)
    return ChunkPlan(
        counts=tuple(KindCount(kind, *entry) for kind, entry in counts.items()),
        kept_inputs=len(units),
        runs=tuple(runs.values()),
    )


def _tally(kinds: Sequence[LayerKind]) -> tuple[tuple[LayerKind, int], ...]:
    """How many of each."""
    return tuple(Counter(kinds).items())
