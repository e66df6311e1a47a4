"""Scatter plots of projected over measured, one per source."""

from collections.abc import Sequence
from io import BytesIO

from schemas.fidelity import RowFidelity

BANDS = ((0.05, 0.16), (0.15, 0.08))
"""Half-widths drawn around equality, and how dark."""
COLOURS = ("#1f5fa8", "#c2571a", "#3a7d44", "#7b4397", "#555555")


def draw_scatter(source: str, rows: Sequence[RowFidelity]) -> bytes:
    """A PNG: projected against measured on logarithmic axes, by GPU and precision.

    Filled points are under published rates; rings, where there is an `after`, are left out of the
    fit that projects them. Bars are the range that assumptions leave open.
    """
    from matplotlib.figure import Figure

    picture = Figure(figsize=(6.4, 6.0), layout="constrained")
    axes = picture.add_subplot()
    least = min(min(row.measured, row.before) for row in rows) * 0.8
    most = max(max(row.measured, row.before) for row in rows) * 1.25
    line = [least, most]
    for width, dark in BANDS:
        low, high = [x * (1 - width) for x in line], [x * (1 + width) for x in line]
        axes.fill_between(line, low, high, color="black", alpha=dark, linewidth=0)
    axes.plot(line, line, color="black", linewidth=0.8)
    for at, (label, own) in enumerate(sorted(_by_machine(rows).items())):
        colour = COLOURS[at % len(COLOURS)]
        measured, before = [row.measured for row in own], [row.before for row in own]
        axes.scatter(measured, before, s=22, color=colour, label=label, alpha=0.75, linewidths=0)
        for row in own:
            if row.low is not None and row.high is not None:
                axes.plot([row.measured] * 2, [row.low, row.high], color=colour, linewidth=0.7)
        after = [(row.measured, row.after) for row in own if row.after is not None]
        if after:
            x, y = zip(*after, strict=True)
            axes.scatter(x, y, s=30, facecolors="none", edgecolors=colour, linewidths=1.0)
    axes.set(xscale="log", yscale="log", xlim=(least, most), ylim=(least, most))
    axes.set_xlabel(f"measured, {rows[0].unit}")
    axes.set_ylabel(f"projected, {rows[0].unit}")
    axes.set_title(f"{source}: {len(rows)} rows; bands are 5 % and 15 %", fontsize=10)
    axes.grid(visible=True, which="both", linewidth=0.3, alpha=0.5)
    axes.legend(fontsize=8, loc="upper left")
    with BytesIO() as file:
        picture.savefig(file, format="png", dpi=130)
        return file.getvalue()


def _by_machine(rows: Sequence[RowFidelity]) -> dict[str, list[RowFidelity]]:
    """Rows by GPU and precision, as the group names them."""
    found: dict[str, list[RowFidelity]] = {}
    for row in rows:
        *_, gpu, precision, _ = row.group.split(" ")
        found.setdefault(f"{gpu}, {precision}", []).append(row)
    return found
