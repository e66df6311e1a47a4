"""A memory projection for a person: per rank, per component, and the numbers behind a line."""

from textwrap import fill
from typing import TYPE_CHECKING, Any

from projection.memory.explain import MemoryExplanation
from projection.memory.lines import PARTS

if TYPE_CHECKING:
    from projection.memory.explain import Explained

GIB = 2**30


def print_explanation(explained: MemoryExplanation) -> None:
    """Every rank in a row, then the lines of every rank, largest first."""
    from flows.terminal import print_table

    rows = explained.summary()
    heaviest = explained.report.heaviest
    print_table(
        ("rank", *(f"{part}>" for part in PARTS), "total GB>", "peaks in|"),
        [
            (
                f"{row.rank}{' heaviest' if row.rank == heaviest else ''}",
                *(f"{row.parts[part]:,.2f}" for part in PARTS),
                f"{row.total_gb:,.2f}",
                row.phase,
            )
            for row in rows
        ],
        title="memory per pipeline rank, GB",
    )
    for row in rows:
        print_table(
            ("component|", "GB>", "share>", "known|", "what"),
            [
                (
                    one.name,
                    f"{one.gb:,.3f}",
                    f"{one.gb / row.total_gb:.1%}",
                    one.line.tag,
                    one.line.what,
                )
                for one in explained.lines(row.rank)
            ],
            title=f"rank {row.rank}: {row.total_gb:,.2f} GB in phase {row.phase}",
        )
    print("--equation COMPONENT shows the equation and the numbers behind a line")


def print_component(explained: MemoryExplanation, name: str) -> None:
    """One line: its equation and source, and its terms on every rank that has it."""
    from flows.terminal import print_table

    found = explained.component(name)
    if not found:
        print(f"{name}: no rank has it at its peak")
        return
    line = found[0].line
    print(f"{name} ({line.tag})")
    notes = [line.what, f"= {line.equation}", f"source: {line.source}"]
    if line.override:
        notes.append(f"memory_overheads: {line.override}")
    for note in notes:
        print(fill(note, 98, initial_indent="  ", subsequent_indent="    "))
    for one in found:
        print_table(
            ("term", "count>", "bytes each>", "GB>"),
            [
                (
                    term.what,
                    f"{term.count:,.0f}" if term.count == int(term.count) else f"{term.count:,.3f}",
                    f"{term.each:,.0f}",
                    f"{term.total / GIB:,.3f}",
                )
                for term in sorted(one.terms, key=lambda term: -abs(term.total))
            ],
            title=f"rank {one.rank}: {one.gb:,.3f} GB",
        )


def as_document(explained: MemoryExplanation, name: str | None = None) -> dict[str, Any]:
    """All of it as JSON values; only the component called `name` when there is one."""
    rows = explained.summary()
    lines = explained.component(name) if name is not None else None
    return {
        "heaviest_rank": explained.report.heaviest,
        "ranks": [
            {
                "rank": row.rank,
                "total_gb": row.total_gb,
                "phase": row.phase,
                "phases_gb": row.phases_gb,
                "parts_gb": row.parts,
                "lines": [
                    _line(one)
                    for one in (explained.lines(row.rank) if lines is None else lines)
                    if one.rank == row.rank
                ],
            }
            for row in rows
        ],
    }


def _line(one: "Explained") -> dict[str, Any]:
    return {
        "component": one.name,
        "gb": one.gb,
        "part": one.line.part,
        "tag": one.line.tag,
        "what": one.line.what,
        "equation": one.line.equation,
        "source": one.line.source,
        "override": one.line.override,
        "terms": [
            {
                "what": term.what,
                "count": term.count,
                "bytes_each": term.each,
                "gb": term.total / GIB,
            }
            for term in one.terms
        ],
    }
