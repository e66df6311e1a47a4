"""A pipeline schedule as text: one row per rank, time to the right."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from projection.schedules import TimedOp

WIDTH = 92
LEGEND = "0-9 forward, a-j backward, + weight gradient (microbatch modulo 10), . idle"


def draw_timeline(operations: "Sequence[Sequence[TimedOp]]", makespan_ms: float) -> list[str]:
    """Rows of at most 100 columns; a cell is the shortest pass, or 1/92 of the makespan if longer.

    A cell shows the pass that covers its middle.
    """
    shortest = min(
        (op.end_ms - op.start_ms for row in operations for op in row if op.end_ms > op.start_ms),
        default=makespan_ms,
    )
    cell_ms = max(shortest, makespan_ms / WIDTH)
    cells = round(makespan_ms / cell_ms) if cell_ms > 0 else 0
    rows = []
    for rank, row in enumerate(operations):
        line = ["."] * cells
        for op in row:
            # The middle of cell c is (c + 1/2)·cell_ms: cells from the first at or after start.
            first = _first_cell(op.start_ms, cell_ms)
            for cell in range(first, min(cells, _first_cell(op.end_ms, cell_ms))):
                line[cell] = _glyph(op)
        rows.append(f"{rank:>3} {''.join(line)}")
    return rows


def _first_cell(time_ms: float, cell_ms: float) -> int:
    return max(0, round(time_ms / cell_ms))


def _glyph(timed: "TimedOp") -> str:
    if timed.op.kind == "F":
        return str(timed.op.microbatch % 10)
    if timed.op.kind == "W":
        return "+"
    return "abcdefghij"[timed.op.microbatch % 10]
