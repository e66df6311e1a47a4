"""How many decoder layers each virtual pipeline stage holds, and what makes a split impossible.

A split is given by a layout string, by the layer counts of the first and last rank, or, with
neither, is even. The grammar of layouts is `schemas.layout`'s.
"""

from functools import lru_cache

from schemas.layout import LayoutError, check_layout, parse_layout


@lru_cache(maxsize=1024)
def layout_layers(layout: str) -> tuple[int, ...]:
    """Decoder layers of each stage of a layout, in model order.

    Raises:
        LayoutError: it is malformed.
    """
    return tuple(stage.layers for stage in parse_layout(layout))


def balanced_layout(num_layers: int, num_stages: int, *, mtp_depths: int = 0) -> str:
    """A layout of `num_stages` stages as Primus' tuning agent writes one.

    Every stage has num_layers // num_stages layers; what is left over goes one each to the middle
    stages, in order from the second (the first also has the embedding, the last the loss), and
    round again if need be. 61 layers over 16 stages: ``Et*3|t*4|…|t*4|t*3|t*3,L``.
    """
    base, extra = divmod(num_layers, num_stages)
    counts = [base] * num_stages
    middle = range(1, num_stages - 1) if num_stages > 2 else range(num_stages)
    for turn in range(extra):
        counts[middle[turn % len(middle)]] += 1
    stages = [f"t*{count}" for count in counts]
    stages[0] = f"E{stages[0]}"
    stages[-1] += (f",m*{mtp_depths}" if mtp_depths else "") + ",L"
    return "|".join(stages)


@lru_cache(maxsize=65536)
def largest_stage(
    num_layers: int,
    pp: int,
    vpp: int,
    layout: str | None = None,
    first: int | None = None,
    last: int | None = None,
) -> int:
    """Decoder layers of the fullest virtual stage; 0 when the split is impossible."""
    if split_problem(num_layers, pp, vpp, layout, first, last) is not None:
        return 0
    if layout is not None:
        return max(layout_layers(layout))
    if first is None and last is None:
        return num_layers // (pp * vpp)
    ends = [count for count in (first, last) if count is not None]
    inner = (num_layers - sum(ends)) // (pp - len(ends)) if pp > len(ends) else 0
    return max([inner, *ends]) // vpp


def split_problem(
    num_layers: int,
    pp: int,
    vpp: int,
    layout: str | None = None,
    first: int | None = None,
    last: int | None = None,
) -> tuple[str, str] | None:
    """Why the layers cannot be split so, as (code, reason); None when they can."""
    if layout is not None:
        problem = _layout_problem(num_layers, pp, vpp, layout)
        return None if problem is None else ("layout_mismatch", problem)
    if first is not None or last is not None:
        return _ends_problem(num_layers, pp, vpp, first, last)
    if num_layers % pp:
        return (
            "pp_splits_layers_unevenly",
            f"num_layers {num_layers} is not a multiple of pp {pp}",
        )
    if num_layers // pp % vpp:
        return (
            "vpp_splits_layers_unevenly",
            f"vpp {vpp} does not divide the {num_layers // pp} layers per stage"
            f" (num_layers {num_layers} / pp {pp})",
        )
    return None


def _layout_problem(num_layers: int, pp: int, vpp: int, layout: str) -> str | None:
    try:
        stages = parse_layout(layout)
        check_layout(stages, num_layers, sum(stage.mtp for stage in stages), pp, vpp)
    except LayoutError as error:
        return f"pipeline layout {layout!r}: {error}"
    return None


def _ends_problem(
    num_layers: int, pp: int, vpp: int, first: int | None, last: int | None
) -> tuple[str, str] | None:
    """Megatron's checks of first- and last-stage layer counts (transformer_block.py)."""
    ends = [count for count in (first, last) if count is not None]
    inner_ranks, inner = pp - len(ends), num_layers - sum(ends)
    given = f"{first if first is not None else 'even'}/{last if last is not None else 'even'}"
    code = "pp_splits_layers_unevenly"
    if pp == 1:
        return code, f"first/last stage layers {given} need pp > 1, pp is 1"
    if inner < inner_ranks or (not inner_ranks and inner) or (inner_ranks and inner % inner_ranks):
        return code, (
            f"first/last stage layers {given} leave {inner} of {num_layers} layers"
            f" for {inner_ranks} ranks"
        )
    per_rank = [*ends, *([inner // inner_ranks] if inner_ranks else [])]
    if any(count % vpp for count in per_rank):
        return "vpp_splits_layers_unevenly", (
            f"vpp {vpp} does not divide the layers per stage {sorted(set(per_rank))}"
        )
    return None
