"""Times of one microbatch through one chunk: its layers, its ends, its recomputation."""

from collections.abc import Callable
from dataclasses import dataclass

from projection.stages import Chunk
from projection.time.cost import ZERO, Cost
from projection.time.fsdp import FsdpTimes
from projection.time.layers import LayerTimes
from projection.work.layer import EMBEDDING, OUTPUT, LayerKind, kind_of_layer, kind_of_mtp
from projection.work.recompute import FullRecompute, full
from schemas.architecture import Architecture
from schemas.trial import NormalTrial

TimesOf = Callable[[LayerKind], LayerTimes]
FsdpOf = Callable[[LayerKind], FsdpTimes]


@dataclass(frozen=True, slots=True)
class ChunkTimes:
    """One microbatch through one chunk, in ms by class. Recomputation is in `input_grad`."""

    forward: Cost
    input_grad: Cost
    weight_grad: Cost

    @property
    def total(self) -> Cost:
        """Everything one microbatch does here."""
        return self.forward.plus(self.input_grad).plus(self.weight_grad)


@dataclass(frozen=True, slots=True)
class KindCount:
    """How many units of one kind a chunk has, and how many of them are recomputed in full."""

    kind: LayerKind
    count: int
    recomputed: int


def kind_counts(
    architecture: Architecture, trial: NormalTrial, chunk: Chunk
) -> tuple[KindCount, ...]:
    """The chunk's units by kind."""
    plan: FullRecompute = full(trial, chunk)
    counts: dict[LayerKind, list[int]] = {}
    for layer in chunk.layers:
        entry = counts.setdefault(kind_of_layer(architecture, layer), [0, 0])
        entry[0] += 1
        entry[1] += layer in plan.layers
    if chunk.mtp:
        counts[kind_of_mtp(architecture)] = [chunk.mtp, chunk.mtp if plan.mtp else 0]
    if chunk.embedding:
        counts[EMBEDDING] = [1, 0]
    if chunk.output:
        counts[OUTPUT] = [1, 0]
    return tuple(KindCount(kind, *entry) for kind, entry in counts.items())


def chunk_times(counts: tuple[KindCount, ...], times_of: TimesOf, fsdp_of: FsdpOf) -> ChunkTimes:
    """Sum the units of a chunk; each recomputed one runs its forward again before its backward."""
    forward = input_grad = weight_grad = ZERO
    for entry in counts:
        times, fsdp = times_of(entry.kind), fsdp_of(entry.kind)
        forward = forward.plus(times.forward.times(entry.count))
        input_grad = input_grad.plus(times.input_grad.times(entry.count))
        weight_grad = weight_grad.plus(times.weight_grad.times(entry.count))
        if entry.recomputed:
            input_grad = input_grad.plus(times.full_rerun.times(entry.recomputed))
        if times.rerun is not ZERO:
            input_grad = input_grad.plus(times.rerun.times(entry.count))
        if fsdp.forward or fsdp.backward:
            forward = forward.plus(Cost(fsdp=fsdp.forward * entry.count))
            input_grad = input_grad.plus(Cost(fsdp=fsdp.backward * entry.count))
    return ChunkTimes(forward, input_grad, weight_grad)
