"""`pipeline_model_parallel_layout`: which layers each virtual pipeline stage holds.

Megatron's notation (megatron/core/transformer/pipeline_parallel_layer_layout.py): stages in model
order are separated by `|`; `E` is the embedding, `t` a decoder layer, `m` a multi-token-prediction
layer, `L` the loss; `*n` repeats the symbol or the bracketed group before it; commas are cosmetic.
`Et*3|(tt|)*29,m|L` is three layers, 29 stages of two, one of `m`, one of `L`. Never evaluated.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

MAX_SYMBOLS: Final = 20_000
_SYMBOLS: Final = "EtmL"
_WORDS: Final = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}


class LayoutError(ValueError):
    """The layout has no meaning; the message says why in one line."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One virtual stage: decoder and MTP layers, and whether an end of the model is here."""

    layers: int
    mtp: int
    embedding: bool
    loss: bool


def parse_layout(text: str) -> tuple[Stage, ...]:
    """The stages of a layout in model order.

    Raises LayoutError when the text is malformed, or does not begin with the one embedding and end
    with the loss.
    """
    expanded = _expand(text)
    flat = expanded.replace("|", "")
    if not flat.startswith("E") or flat.count("E") != 1:
        raise LayoutError("a layout begins with E, the embedding, and has it once")
    if not flat.endswith("L") or flat.count("L") != 1:
        raise LayoutError("a layout ends with L, the loss, and has it once")
    if "m" in flat and "t" in flat[flat.index("m") :]:
        raise LayoutError("decoder layers (t) stand before the prediction layers (m) in a layout")
    return tuple(
        Stage(stage.count("t"), stage.count("m"), "E" in stage, "L" in stage)
        for stage in expanded.split("|")
    )


def layout_text(value: Any) -> str | None:
    """A layout as text, from text or from Megatron's list of lists; None when unset."""
    if value is None:
        return None
    if isinstance(value, str):
        return "".join(value.split()) or None
    if not isinstance(value, Sequence) or not all(isinstance(row, list) for row in value):
        raise LayoutError("expected text like Et*3|t*4|t*3,L or a list with one list per stage")
    rows = []
    for row in value:
        words = [str(word).strip().lower() for word in row]
        unknown = [word for word in words if word not in _WORDS]
        if unknown:
            raise LayoutError(f"{unknown[0]!r:.30} is not a layer; they are {', '.join(_WORDS)}")
        rows.append("".join(_WORDS[word] for word in words))
    return "|".join(rows)


def check_layout(
    stages: Sequence[Stage], num_layers: int, mtp: int, pp: int, vpp: int | None
) -> int:
    """The virtual stages per rank that a layout means, checked against the model and pp.

    `mtp` prediction layers may be left out of the layout: then they are with the loss. Raises
    LayoutError with the numbers when layers or stages do not add up.
    """
    layers, placed = sum(stage.layers for stage in stages), sum(stage.mtp for stage in stages)
    if layers != num_layers:
        raise LayoutError(f"the layout has {layers} decoder layers, num_layers is {num_layers}")
    if placed not in (0, mtp):
        raise LayoutError(f"the layout has {placed} prediction layers, mtp_num_layers is {mtp}")
    if vpp is not None and len(stages) != pp * vpp:
        raise LayoutError(f"the layout has {len(stages)} stages, pp·vpp is {pp * vpp}")
    if len(stages) % pp:
        raise LayoutError(f"the layout has {len(stages)} stages, which pp = {pp} does not divide")
    return len(stages) // pp


def _expand(text: str) -> str:
    """`text` with groups and repeats written out, commas and spaces dropped."""
    pieces: list[str] = []
    group_start: int | None = None
    unit = ""
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character in ", \t":
            continue
        if character == "(":
            if group_start is not None:
                raise LayoutError("groups in a layout do not nest")
            group_start = len(pieces)
            unit = ""
        elif character == ")":
            if group_start is None:
                raise LayoutError("a layout closes a group it never opened")
            unit = "".join(pieces[group_start:])
            del pieces[group_start:]
            pieces.append(unit)
            group_start = None
        elif character == "*":
            position, count = _count(text, position)
            if not unit:
                raise LayoutError("* in a layout follows a layer or a group")
            if len(unit) * count + sum(map(len, pieces)) > MAX_SYMBOLS:
                raise LayoutError(f"the layout has more than {MAX_SYMBOLS} layers and stages")
            pieces[-1] = unit * count
            unit = ""
        elif character in _SYMBOLS or character == "|":
            pieces.append(character)
            unit = character
        else:
            raise LayoutError(
                f"{character!r} is not part of a layout: E, t, m, L, |, *n and ( ) are"
            )
    if group_start is not None:
        raise LayoutError("a layout opens a group it never closes")
    return "".join(pieces)


def _count(text: str, position: int) -> tuple[int, int]:
    """The position after the digits at `position`, and the count they spell."""
    end = position
    while end < len(text) and text[end].isascii() and text[end].isdecimal():
        end += 1
    if not 1 <= end - position <= 6:
        raise LayoutError("* in a layout is followed by a count")
    return end, int(text[position:end])
