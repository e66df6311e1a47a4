"""Activation bytes alive at a rank's worst moment, as its schedule's order decides."""

from collections.abc import Sequence
from dataclasses import dataclass
from operator import mul

from projection.memory.rank import ChunkMemory
from projection.schedules.live import LiveState


@dataclass(frozen=True, slots=True)
class InFlight:
    """Bytes at the high-water mark, by what they are."""

    tensors: float
    """Saved tensors of layers, of microbatches whose backward has not run."""
    vocabulary: float
    """Saved tensors of the embedding, the output head and the loss."""
    checkpoints: float
    """Layer inputs kept by full recomputation."""
    deferred: float
    """Operands that weight gradients still wait for (split backward)."""
    state: LiveState
    """Microbatches alive at that moment, by chunk."""

    @property
    def total(self) -> float:
        """All of it."""
        return self.tensors + self.vocabulary + self.checkpoints + self.deferred


def high_water(states: Sequence[LiveState], chunks: Sequence[ChunkMemory]) -> InFlight:
    """The most demanding of a rank's live states, priced with its chunks' bytes."""
    if len(states) == 1:
        return _price(states[0], chunks)
    whole = [chunk.saved for chunk in chunks]
    waiting = [chunk.for_weights for chunk in chunks]

    def total(state: LiveState) -> float:
        held: float = sum(map(mul, state.whole, whole))
        deferred: float = sum(map(mul, state.for_weights, waiting))
        return held + deferred

    return _price(max(states, key=total), chunks)


def _price(state: LiveState, chunks: Sequence[ChunkMemory]) -> InFlight:
    """Bytes of one live state."""
    tensors = vocabulary = checkpoints = deferred = 0.0
    for whole, waiting, chunk in zip(state.whole, state.for_weights, chunks, strict=True):
        tensors += whole * chunk.tensors
        vocabulary += whole * chunk.vocabulary
        checkpoints += whole * chunk.checkpoints
        deferred += waiting * chunk.for_weights
    return InFlight(tensors, vocabulary, checkpoints, deferred, state)
