"""A schedule's timeline as text."""

from collections.abc import Sequence

from projection.schedules.order import TimedOp
from projection.schedules.simulate import Timeline

IDLE = "."
LEGEND = "F forward, B input gradient, W weight gradient, X backward in one; lower case: odd chunk"
_LETTERS = {"F": "F", "B": "B", "W": "W", "BW": "X"}


def gantt(timeline: Timeline, width: int = 120) -> str:
    """One line per rank, time to the right, idle as dots; at most `width` columns.

    An op is its letter repeated, with its microbatch's number after the first when that fits, and
    is left out when it is shorter than half a column. The scale is whole columns per shortest op
    where the width allows, so that equal ops look equal.
    """
    rows = timeline.operations()
    label = len(f"rank {len(rows) - 1} ")
    room = max(width - label, 1)
    scale = _columns_per_ms(rows, timeline.makespan_ms, room)
    columns = round(timeline.makespan_ms * scale)
    lines = [f"{f'rank {r}':<{label}}{_line(row, scale, columns)}" for r, row in enumerate(rows)]
    return "\n".join((*lines, LEGEND)) + "\n"


def _columns_per_ms(rows: Sequence[Sequence[TimedOp]], makespan_ms: float, room: int) -> float:
    lengths = [timed.end_ms - timed.start_ms for row in rows for timed in row]
    shortest = min((length for length in lengths if length > 0), default=0.0)
    if makespan_ms <= 0:
        return 0.0
    whole = int(room / makespan_ms * shortest)
    return whole / shortest if whole >= 1 else room / makespan_ms


def _line(row: Sequence[TimedOp], scale: float, columns: int) -> str:
    cells = [IDLE] * columns
    for timed in row:
        begin, end = round(timed.start_ms * scale), round(timed.end_ms * scale)
        letter = _LETTERS[timed.op.kind]
        letter = letter.lower() if timed.op.chunk % 2 else letter
        number = str(timed.op.microbatch)
        text = letter + number if end - begin > len(number) else letter
        cells[begin:end] = text.ljust(end - begin, letter)[: end - begin]
    return "".join(cells)
