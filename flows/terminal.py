"""What verbs put on the terminal: JSON, tables of at most 100 columns, and lines."""

import json
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

MAX_WIDTH = 100
BETWEEN = 3
"""Columns between two columns of a table."""
NARROWEST = 24
"""Characters that a column which wraps is not broken below, if it has as many."""


def print_json(value: Any) -> None:
    """`value` on stdout as JSON, indented; pydantic models as their fields."""
    print(
        json.dumps(
            value, indent=2, allow_nan=False, default=_plain, ensure_ascii=not _takes_unicode()
        )
    )


def json_line(value: Any) -> str:
    """`value` as JSON on one line."""
    return json.dumps(value, allow_nan=False, default=_plain, ensure_ascii=not _takes_unicode())


def _takes_unicode() -> bool:
    """Stdout is UTF-8. Elsewhere JSON has its own escapes for what the encoding lacks."""
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON form")


def console(*, stderr: bool = False) -> "Console":
    """A console no wider than 100 columns; without colour where it is not a terminal."""
    from rich.console import Console

    made = Console(stderr=stderr, highlight=False)
    if not made.is_terminal or made.width > MAX_WIDTH:
        made.width = MAX_WIDTH
    return made


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str = ""
) -> None:
    """A table on stdout. A column whose name ends in `>` is right-aligned and never broken, one
    whose name ends in `|` is never broken; the others wrap. One that is too wide all the same is
    printed in parts, each with the first column.
    """
    for part in _parts(columns, rows):
        picked = [[row[at] for at in part] for row in rows]
        _print_part([columns[at] for at in part], picked, title)
        title = ""


def _parts(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[list[int]]:
    """Columns by the part of a table they are printed in; the first is in all of them."""
    widths = [
        max([_width(name, name), *(_width(name, _cell(row[at])) for row in rows)])
        for at, name in enumerate(columns)
    ]
    room = console().width - widths[0] - BETWEEN
    parts: list[list[int]] = [[0]]
    left = room
    for at in range(1, len(columns)):
        needed = widths[at] + BETWEEN
        if needed > left and len(parts[-1]) > 1:
            parts.append([0])
            left = room
        parts[-1].append(at)
        left -= needed
    return parts


def _width(column: str, text: str) -> int:
    """What a cell needs: a column that is never broken all of it, another enough to be read."""
    whole = max(map(len, text.rstrip("|>").splitlines()), default=0)
    return whole if column.endswith((">", "|")) else min(whole, NARROWEST)


def _print_part(columns: Sequence[str], rows: Sequence[Sequence[object]], title: str) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import JustifyMethod
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    for name in columns:
        if name.endswith((">", "|")):
            justify: JustifyMethod = "right" if name.endswith(">") else "left"
            table.add_column(name[:-1], justify=justify, no_wrap=True)
        else:
            table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row))
    print(rendered(table), end="")


def rendered(*parts: Any) -> str:
    """What rich makes of `parts`. It is printed by us: rich exits the process on a broken pipe."""
    out = console()
    with out.capture() as captured:
        for part in parts:
            out.print(part)
    return captured.get()


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.1f}" if abs(value) >= 10 else f"{value:,.3g}"
    return str(value)


def wrapped(text: str, *, indent: int, label: str = "") -> list[str]:
    """`label`, then `text` from column `indent` on, broken between words at 100 columns."""
    import textwrap

    lines = textwrap.wrap(" ".join(text.split()), MAX_WIDTH - indent, break_on_hyphens=False)
    first, *others = lines or [""]
    return [f"{label:{indent}}{first}".rstrip(), *(f"{'':{indent}}{line}" for line in others)]


def say(line: str) -> None:
    """One line about what is going on, on stderr."""
    print(line, file=sys.stderr, flush=True)


def warn(line: str) -> None:
    """One line about what is odd, on stderr."""
    say(f"warning: {line}")
