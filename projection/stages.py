"""Which layers sit on each pipeline rank and chunk.

A virtual stage is a run of consecutive layers; there are pp · vpp of them in model order. Rank and
chunk own one each: round-robin for interleaved schedules, V-shaped for the zero-bubble V family.
"""

from collections.abc import Callable
from dataclasses import dataclass

import schemas.layout
from projection.schedules import stage_of
from schemas.architecture import Architecture
from schemas.errors import WorkloadError
from schemas.trial import Schedule


@dataclass(frozen=True, slots=True)
class Chunk:
    """One virtual stage on the rank that runs it. `layers` are decoder layers, 0-based."""

    stage: int
    layers: tuple[int, ...]
    embedding: bool = False
    output: bool = False
    mtp: int = 0


@dataclass(frozen=True, slots=True)
class StageMap:
    """All chunks of a pipeline, `chunks[rank][chunk]`."""

    chunks: tuple[tuple[Chunk, ...], ...]

    def rank_of_embedding(self) -> int:
        """The rank that holds the token embedding."""
        return self._rank(lambda chunk: chunk.embedding)

    def rank_of_output(self) -> int:
        """The rank that holds the output head."""
        return self._rank(lambda chunk: chunk.output)

    def _rank(self, holds: Callable[[Chunk], bool]) -> int:
        return next(
            rank for rank, own in enumerate(self.chunks) if any(holds(chunk) for chunk in own)
        )


def stage_map(
    architecture: Architecture,
    schedule: Schedule,
    pp: int,
    vpp: int,
    *,
    layout: str | None = None,
    first_stage_layers: int | None = None,
    last_stage_layers: int | None = None,
) -> StageMap:
    """The chunks of every rank.

    Raises:
        WorkloadError: the layout does not describe pp · vpp stages of this model, or there are more
            stages than layers.
    """
    if layout is not None:
        stages = parse_layout(layout, architecture, pp * vpp)
    else:
        counts = layer_counts(
            architecture.num_layers, pp, vpp, first_stage_layers, last_stage_layers
        )
        stages = _consecutive(counts, architecture.mtp_num_layers)
    return StageMap(
        tuple(
            tuple(stages[stage_of(schedule, rank, chunk, pp, vpp)] for chunk in range(vpp))
            for rank in range(pp)
        )
    )


def layer_counts(
    num_layers: int, pp: int, vpp: int, first: int | None = None, last: int | None = None
) -> tuple[int, ...]:
    """Decoder layers of each virtual stage, in model order.

    Balanced, a remainder going to the first stages. `first` and `last` are the counts of the first
    and last pipeline rank over all their chunks (Megatron's num_layers_in_first_pipeline_stage);
    the other ranks share the rest.

    Raises:
        WorkloadError: fewer layers than stages, or counts that leave nothing to share.
    """
    stages = pp * vpp
    if first is None and last is None:
        if num_layers < stages:
            raise WorkloadError(f"{num_layers} layers cannot fill pp·vpp = {pp}·{vpp} stages")
        return _balanced(num_layers, stages)
    if pp == 1:
        raise WorkloadError("first and last stage layer counts need pp > 1")
    fixed = {0: first, pp - 1: last}
    open_ranks = [rank for rank in range(pp) if fixed.get(rank) is None]
    left = num_layers - sum(count for count in fixed.values() if count is not None)
    if left < len(open_ranks) * vpp or (not open_ranks and left):
        raise WorkloadError(
            f"{num_layers} layers less {first or 0} on the first and {last or 0} on the last rank "
            f"leave {left} for {len(open_ranks)} ranks of {vpp} chunks"
        )
    counts = [0] * stages
    middle = [stage for chunk in range(vpp) for stage in (chunk * pp + rank for rank in open_ranks)]
    for stage, count in zip(middle, _balanced(left, len(middle)) if middle else (), strict=True):
        counts[stage] = count
    for rank, total in fixed.items():
        if total is not None:
            for chunk, count in enumerate(_balanced(total, vpp)):
                counts[chunk * pp + rank] = count
    return tuple(counts)


def _balanced(total: int, parts: int) -> tuple[int, ...]:
    """`total` in `parts` as evenly as can be, larger parts first."""
    base, extra = divmod(total, parts)
    return tuple(base + (1 if part < extra else 0) for part in range(parts))


def _consecutive(counts: tuple[int, ...], mtp: int) -> tuple[Chunk, ...]:
    """Stages of consecutive layers; embedding first, output head and MTP last."""
    stages, start, last = [], 0, len(counts) - 1
    for stage, count in enumerate(counts):
        layers = tuple(range(start, start + count))
        start += count
        stages.append(Chunk(stage, layers, stage == 0, stage == last, mtp if stage == last else 0))
    return tuple(stages)


def parse_layout(layout: str, architecture: Architecture, num_stages: int) -> tuple[Chunk, ...]:
    """The stages of a layout string (grammar: `schemas.layout`) as chunks of this model.

    A layout without m has its MTP depths with the output head.

    Raises:
        WorkloadError: it is malformed, or its counts are not this model's.
    """
    try:
        parsed = schemas.layout.parse_layout(layout)
        schemas.layout.check_layout(
            parsed, architecture.num_layers, architecture.mtp_num_layers, num_stages, 1
        )
    except schemas.layout.LayoutError as error:
        raise WorkloadError(f"pipeline layout {layout!r}: {error}") from error
    placed = any(part.mtp for part in parsed)
    stages, start = [], 0
    for stage, part in enumerate(parsed):
        mtp = part.mtp if placed else architecture.mtp_num_layers * part.loss
        layers = tuple(range(start, start + part.layers))
        stages.append(Chunk(stage, layers, part.embedding, part.loss, mtp))
        start += part.layers
    return tuple(stages)
