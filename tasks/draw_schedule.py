"""The picture of a pipeline schedule: who runs what when, and under it what every rank holds.

Matplotlib's object interface on its Agg and SVG canvases, in its default style whatever the user's
settings: the same schedule gives the same bytes.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from projection.schedules import Curve, TimedOp

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Format = Literal["png", "svg"]

COLOURS = {"F": "#0072B2", "B": "#E69F00", "W": "#009E73", "BW": "#D55E00"}
"""Okabe and Ito's palette: distinguishable in every common form of colour blindness."""
NAMES = {"F": "F forward", "B": "B input gradient", "W": "W weight gradient", "BW": "B backward"}
IDLE, GREY = "#EFEFEF", "#6F6F6F"
CHUNK_TINTS = (0.0, 0.45, 0.65, 0.78)
"""How far a chunk's colour is mixed with white."""

DPI = 120
WIDTHS_IN = (11.0, 18.0)
PIXELS_PER_PASS = (30.0, 12.0)
"""Mean width of a pass for which the picture grows, and below which its middle is left out."""
ROW_IN, MEMORY_IN, FRAME_IN = 0.34, 2.0, 1.75
EDGE_PIXELS, DIGIT_PIXELS = 4.0, 6.0
"""Narrowest pass with an edge, and what one digit of its number needs."""
LEGEND_IN = 1.75
"""Room for one rank in the legend."""
BAR = 0.86
"""Height of a pass, of a rank's row."""
MAX_LEGEND = 8
"""Ranks up to which every one is in the legend."""


Window = tuple[float, float]
"""From and to, in ms."""


@dataclass(frozen=True, slots=True)
class SchedulePicture:
    """Everything on the picture. One row of passes and one curve per rank."""

    title: str
    subtitle: str
    rows: tuple[tuple[TimedOp, ...], ...]
    curves: tuple[Curve, ...]
    amount: str
    """What the curves are of, with its unit."""
    cap: float | None
    """The most a rank may hold."""

    @property
    def makespan_ms(self) -> float:
        """End of the last pass."""
        return max((row[-1].end_ms for row in self.rows if row), default=0.0)

    @property
    def kinds(self) -> list[str]:
        """The kinds of passes there are, in the order of the legend."""
        present = {timed.op.kind for row in self.rows for timed in row}
        return [kind for kind in COLOURS if kind in present]

    @property
    def num_chunks(self) -> int:
        """Chunks per rank."""
        return 1 + max((timed.op.chunk for row in self.rows for timed in row), default=0)


def draw_schedule(picture: SchedulePicture, file_format: Format) -> bytes:
    """The picture as a PNG or SVG file; identical bytes for identical input.

    Of a long run the passes of its start and its end are drawn, and what is held over all of it.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(matplotlib.rcParamsDefault):
        matplotlib.rcParams["svg.hashsalt"] = "refold"
        gantt_in = max(ROW_IN * len(picture.rows), 1.0)
        height = gantt_in + MEMORY_IN + FRAME_IN
        figure = Figure(figsize=(_width_in(picture), height), dpi=DPI, layout="constrained")
        FigureCanvasAgg(figure)
        shown = windows(picture)
        grid = figure.add_gridspec(2, len(shown), height_ratios=(gantt_in, MEMORY_IN))
        gantts = [figure.add_subplot(grid[0, column]) for column in range(len(shown))]
        _draw_title(figure, picture, shown)
        for axes, window in zip(gantts, shown, strict=True):
            _draw_gantt(axes, picture, window)
        gantts[0].set_ylabel("rank")
        _draw_legend(gantts[0], picture)
        _draw_memory(figure.add_subplot(grid[1, :]), picture, shown)
        figure.canvas.draw()
        for axes, window in zip(gantts, shown, strict=True):
            _number(axes, picture, window)
        buffer = io.BytesIO()
        # Without these the file names the library, its version and the date.
        nothing = {"Software": None} if file_format == "png" else {"Creator": None, "Date": None}
        figure.savefig(buffer, format=file_format, metadata=nothing)
    return buffer.getvalue()


def windows(picture: SchedulePicture) -> list[Window]:
    """The parts of the run whose passes are drawn: all of it, or its start and its end."""
    end = picture.makespan_ms or 1.0
    room = WIDTHS_IN[1] * DPI / PIXELS_PER_PASS[1]
    passes = max(map(len, picture.rows), default=0)
    if passes <= room:
        return [(0.0, end)]
    part = end * room / passes / 2
    return [(0.0, part), (end - part, end)]


def milliseconds(ms: float) -> str:
    """A time in words: four digits, or all before the point."""
    return f"{ms:,.0f} ms" if ms >= 1000 else f"{ms:.4g} ms"


def _width_in(picture: SchedulePicture) -> float:
    """Wide enough to number the passes of the fullest rank, within limits."""
    passes = max(map(len, picture.rows), default=0)
    narrowest, widest = WIDTHS_IN
    return min(max(passes * PIXELS_PER_PASS[0] / DPI, narrowest), widest)


def _draw_title(figure: "Figure", picture: SchedulePicture, shown: Sequence[Window]) -> None:
    left_out = ""
    if len(shown) > 1:
        left, right = milliseconds(shown[0][1]), milliseconds(shown[1][0])
        left_out = f"   (passes between {left} and {right} not drawn)"
    # The empty lines are where the subtitle and the legend stand.
    figure.suptitle(f"{picture.title}\n\n", fontsize=13, x=0.01, ha="left", weight="bold")
    top = 1 - 0.34 / figure.get_figheight()
    text = picture.subtitle + left_out
    figure.text(0.01, top, text, fontsize=9.5, color=GREY, ha="left", va="top")


def _draw_gantt(axes: "Axes", picture: SchedulePicture, window: Window) -> None:
    begin, end = window
    axes.set_xlim(begin, end)
    axes.set_ylim(len(picture.rows) - 0.5, -0.5)
    pixels_per_ms = axes.bbox.width / (end - begin)
    for rank, row in enumerate(picture.rows):
        band = (rank - BAR / 2, BAR)
        axes.broken_barh([(begin, end - begin)], band, facecolors=IDLE, linewidth=0)
        for kind, chunk, spans in _spans(row, window):
            mean = sum(width for _, width in spans) / len(spans)
            edged = mean * pixels_per_ms >= EDGE_PIXELS
            axes.broken_barh(
                spans,
                band,
                facecolors=_colour(kind, chunk),
                edgecolors="white" if edged else "none",
                linewidth=0.6 if edged else 0,
            )
    axes.set_yticks(range(len(picture.rows)), [str(rank) for rank in range(len(picture.rows))])
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _draw_legend(axes: "Axes", picture: SchedulePicture) -> None:
    from matplotlib.patches import Patch

    handles = [
        Patch(facecolor=_colour(kind, chunk), label=_label(kind, chunk, picture.num_chunks))
        for chunk in range(picture.num_chunks)
        for kind in picture.kinds
    ]
    handles.append(Patch(facecolor=IDLE, label="idle"))
    legend = axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(-0.005, 1.0),
        ncols=len(handles),
        fontsize=8.5,
        frameon=False,
        handlelength=1.2,
        handletextpad=0.4,
        columnspacing=1.2,
    )
    # It may be wider than its axes, which would be made to fit it.
    legend.set_in_layout(False)


def _spans(
    row: Sequence[TimedOp], window: Window
) -> Iterator[tuple[str, int, list[tuple[float, float]]]]:
    """(kind, chunk, start and length of each pass), for all kinds and chunks in the window."""
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for timed in _within(row, window):
        length = timed.end_ms - timed.start_ms
        found.setdefault((timed.op.kind, timed.op.chunk), []).append((timed.start_ms, length))
    for (kind, chunk), spans in sorted(found.items()):
        yield kind, chunk, spans


def _within(row: Sequence[TimedOp], window: Window) -> Iterator[TimedOp]:
    return (timed for timed in row if timed.end_ms > window[0] and timed.start_ms < window[1])


def _label(kind: str, chunk: int, num_chunks: int) -> str:
    if num_chunks == 1:
        return NAMES[kind]
    return f"{NAMES[kind]}, chunk 0" if chunk == 0 else f"{kind[0]}, chunk {chunk}"


def _colour(kind: str, chunk: int) -> str:
    """The kind's colour, lighter for every further chunk."""
    tint = CHUNK_TINTS[min(chunk, len(CHUNK_TINTS) - 1)]
    parts = (int(COLOURS[kind][at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * tint):02X}" for part in parts)


def _number(axes: "Axes", picture: SchedulePicture, window: Window) -> None:
    """Microbatch numbers in the passes that are wide enough for theirs."""
    (left, _), (right, _) = axes.transData.transform([(window[0], 0), (window[1], 0)])
    pixels_per_ms = (right - left) / (window[1] - window[0])
    for rank, row in enumerate(picture.rows):
        for timed in _within(row, window):
            text = str(timed.op.microbatch)
            if (timed.end_ms - timed.start_ms) * pixels_per_ms < DIGIT_PIXELS * len(text) + 2:
                continue
            dark = timed.op.kind == "B" or timed.op.chunk > 0
            axes.text(
                (timed.start_ms + timed.end_ms) / 2,
                rank,
                text,
                ha="center",
                va="center_baseline",
                fontsize=6.5,
                color="black" if dark else "white",
                clip_on=True,
            )


def _draw_memory(axes: "Axes", picture: SchedulePicture, shown: Sequence[Window]) -> None:
    """What every rank holds, as steps; ranks from dark to light, so that any number can be told."""
    import matplotlib

    shades = matplotlib.colormaps["viridis"]
    last = max(len(picture.curves) - 1, 1)
    listed = _listed(len(picture.curves))
    highest = 0.0
    for rank, curve in enumerate(picture.curves):
        times = [at for at, _ in curve] + [picture.makespan_ms]
        amounts = [amount for _, amount in curve] + [curve[-1][1]]
        highest = max(highest, *amounts)
        axes.step(
            times,
            amounts,
            where="post",
            color=shades(0.92 * rank / last),
            linewidth=1.3,
            label=f"rank {rank}: peak {max(amounts):,.4g}" if rank in listed else "_",
        )
    if picture.cap is not None:
        axes.axhline(picture.cap, color="black", linewidth=1.2, linestyle=(0, (4, 3)))
        note = f"cap {picture.cap:,.1f}"
        axes.annotate(
            note,
            xy=(0.003, picture.cap),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            textcoords="offset points",
            fontsize=8.5,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 0.6},
        )
        highest = max(highest, picture.cap)
    for begin, end in shown if len(shown) > 1 else ():
        axes.axvspan(begin, end, color=IDLE, zorder=0)
    axes.set_xlim(0, picture.makespan_ms or 1.0)
    axes.set_ylim(0, highest * 1.12 or 1.0)
    axes.set_xlabel("ms")
    axes.set_ylabel(picture.amount)
    axes.grid(axis="y", color="#E4E4E4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(
        loc="upper left",
        bbox_to_anchor=(-0.005, -0.24),
        ncols=int(_width_in(picture) / LEGEND_IN),
        fontsize=8.5,
        frameon=False,
        handlelength=1.4,
        columnspacing=1.2,
    )


def _listed(num_ranks: int) -> set[int]:
    """Ranks in the legend: all of a short pipeline, evenly spaced ones of a long one."""
    if num_ranks <= MAX_LEGEND:
        return set(range(num_ranks))
    return {round(at * (num_ranks - 1) / (MAX_LEGEND - 1)) for at in range(MAX_LEGEND)}
