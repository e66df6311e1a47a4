"""Which layers sit on each pipeline rank and chunk.

A virtual stage is a run of consecutive layers; there are pp · vpp of them in model order. Rank and
chunk own one each: round-robin for interleaved schedules, V-shaped for the zero-bubble V family.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

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


MAX_LAYOUT_SYMBOLS = 100_000
"""A layout this long is a typing error, not a model."""

_REPEAT = re.compile(r"\(([^()]*)\)\*(\d+)|([EtmL])\*(\d+)")


def parse_layout(layout: str, architecture: Architecture, num_stages: int) -> tuple[Chunk, ...]:
    """The stages of a Megatron layout string such as ``Et*3|t*4|(t*2|)*3,mL``.

    Stages are split by ``|`` in model order; E embedding, t decoder layer, m MTP depth, L output
    head; ``x*n`` and ``(…)*n`` repeat; commas only separate. A layout without m has its MTP depths
    with the output head.

    Raises:
        WorkloadError: an unknown letter, or counts that are not this model's.
    """
    text = re.sub(r"[\s,]", "", layout)
    while (match := _REPEAT.search(text)) is not None:
        body, times = (match[1], match[2]) if match[1] is not None else (match[3], match[4])
        if len(text) + len(body) * int(times) > MAX_LAYOUT_SYMBOLS:
            raise WorkloadError(
                f"pipeline layout {layout!r} repeats to more than {MAX_LAYOUT_SYMBOLS} symbols"
            )
        text = text[: match.start()] + body * int(times) + text[match.end() :]
    unknown = sorted(set(text) - set("EtmL|"))
    if unknown:
        raise WorkloadError(f"pipeline layout {layout!r} has unknown symbol {unknown[0]!r}")
    parts = text.split("|")
    _check_layout(layout, parts, architecture, num_stages)
    stages, start = [], 0
    for stage, part in enumerate(parts):
        count = part.count("t")
        mtp = part.count("m") if "m" in text else architecture.mtp_num_layers * ("L" in part)
        stages.append(
            Chunk(stage, tuple(range(start, start + count)), "E" in part, "L" in part, mtp)
        )
        start += count
    return tuple(stages)


def _check_layout(
    layout: str, parts: list[str], architecture: Architecture, num_stages: int
) -> None:
    """Raise WorkloadError unless the layout is one of this model over `num_stages` stages."""
    if len(parts) != num_stages:
        raise WorkloadError(
            f"pipeline layout {layout!r} has {len(parts)} stages, pp·vpp is {num_stages}"
        )
    text = "".join(parts)
    layers = text.count("t")
    if layers != architecture.num_layers:
        raise WorkloadError(
            f"pipeline layout {layout!r} has {layers} layers, the model {architecture.num_layers}"
        )
    if text.count("E") != 1 or text.count("L") != 1:
        raise WorkloadError(f"pipeline layout {layout!r} needs exactly one E and one L")
    if "m" in text and text.count("m") != architecture.mtp_num_layers:
        raise WorkloadError(
            f"pipeline layout {layout!r} has {text.count('m')} MTP depths, "
            f"the model {architecture.mtp_num_layers}"
        )
