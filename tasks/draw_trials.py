"""`trials.png`: the incumbent against the trial number, and memory against the cap.

Matplotlib's object interface on its Agg canvas, in its default style whatever the user's settings:
the same trials give the same bytes.
"""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Outcome = Literal["fits", "over", "rejected", "invalidated"]

BLUE, ORANGE, RED, GREY, GREEN = "#0072B2", "#E69F00", "#D55E00", "#7F7F7F", "#009E73"
"""Okabe and Ito's palette: distinguishable in every common form of colour blindness."""

WIDTH_IN, HEIGHT_IN, DPI = 10.0, 6.4, 120
MAX_LABELLED = 60
"""Trials up to which every one of them has its rule written under it."""
MEMORY_CLIP = 2.0
"""Bars are cut off, and marked so, above this multiple of the cap."""


@dataclass(frozen=True, slots=True)
class TrialMark:
    """What the picture shows of one trial. Memory in 2^30 bytes per GPU, None where unknown."""

    number: int
    rule: str
    outcome: Outcome
    """fits; over: scored, but beyond the cap (the baseline may be); rejected: never scored;
    invalidated: scored, and the score was found wrong."""
    tokens_per_s_per_gpu: float | None
    memory_gb: float | None


@dataclass(frozen=True, slots=True)
class TrialsPicture:
    """Everything on the picture. `marks` in trial order; trial 0 is the baseline."""

    title: str
    subtitle: str
    cap_gb: float | None
    marks: tuple[TrialMark, ...]

    def incumbents(self) -> list[tuple[int, float]]:
        """(trial number, tokens/s/GPU) of each trial that was the best fitting one so far."""
        best: list[tuple[int, float]] = []
        for mark in self.marks:
            value = mark.tokens_per_s_per_gpu
            if mark.outcome == "fits" and value is not None and (not best or value > best[-1][1]):
                best.append((mark.number, value))
        return best


def draw_trials(picture: TrialsPicture, *, dpi: int = DPI) -> bytes:
    """The picture as a PNG, of 1200 × 768 pixels at `DPI`; the same input gives the same bytes."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with matplotlib.rc_context(matplotlib.rcParamsDefault):
        figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN), dpi=dpi, layout="constrained")
        FigureCanvasAgg(figure)
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(2.2, 1))
        _draw_title(figure, picture)
        _draw_objective(top, picture)
        _draw_memory(bottom, picture)
        _label_trials(bottom, picture.marks)
        buffer = io.BytesIO()
        # Without this the PNG names the library and its version.
        figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def _draw_title(figure: "Figure", picture: TrialsPicture) -> None:
    figure.suptitle(f"{picture.title}\n", fontsize=13, x=0.01, ha="left", weight="bold")
    figure.text(0.01, 0.945, picture.subtitle, fontsize=9.5, color=GREY, ha="left", va="top")


def _draw_objective(axes: "Axes", picture: TrialsPicture) -> None:
    from matplotlib.ticker import StrMethodFormatter

    scored = [m for m in picture.marks if m.tokens_per_s_per_gpu is not None]
    for outcome, face, edge, label in (
        ("fits", BLUE, BLUE, "scored, fits"),
        ("over", "white", ORANGE, "scored, over the memory cap"),
        ("invalidated", "white", GREY, "scored, invalidated"),
    ):
        points = [m for m in scored if m.outcome == outcome]
        if points:
            axes.scatter(
                [m.number for m in points],
                [m.tokens_per_s_per_gpu or 0.0 for m in points],
                s=34,
                c=face,
                edgecolors=edge,
                linewidths=1.4,
                zorder=3,
                label=label,
            )
    _draw_incumbent(axes, picture)
    _draw_rejected(axes, picture.marks)
    axes.set_ylabel("tokens/s/GPU")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.margins(y=0.16)
    axes.grid(axis="y", color="#E4E4E4", linewidth=0.8)
    axes.set_axisbelow(True)
    _open_frame(axes)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(-0.012, 1.0),
            ncols=5,
            fontsize=8.5,
            frameon=False,
            handletextpad=0.4,
            columnspacing=1.2,
        )


def _draw_incumbent(axes: "Axes", picture: TrialsPicture) -> None:
    best = picture.incumbents()
    first = picture.marks[0] if picture.marks else None
    baseline = first.tokens_per_s_per_gpu if first else None
    baseline_fits = first is not None and first.outcome == "fits"
    if baseline is not None:
        axes.axhline(baseline, color=GREY, linestyle=(0, (4, 3)), linewidth=1.1, zorder=1)
        standing = {"fits": "", "invalidated": ", invalidated"}
        axes.annotate(
            f"baseline {baseline:,.0f}{standing.get(picture.marks[0].outcome, ', does not fit')}",
            xy=(0.995, baseline),
            xycoords=("axes fraction", "data"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="right",
            fontsize=8.5,
            color=GREY,
        )
    if not best:
        return
    numbers = [number for number, _ in best] + [picture.marks[-1].number]
    values = [value for _, value in best] + [best[-1][1]]
    axes.step(numbers, values, where="post", color=GREEN, linewidth=2, zorder=2, label="incumbent")
    number, value = best[-1]
    axes.scatter([number], [value], marker="*", s=190, c=GREEN, zorder=4, linewidths=0)
    gain = f"  ({value / baseline - 1:+.1%})" if baseline and baseline_fits and number else ""
    late = len(picture.marks) > 1 and number > 0.75 * picture.marks[-1].number
    axes.annotate(
        f"#{number}  {value:,.0f}{gain}",
        xy=(number, value),
        xytext=(0, 9),
        textcoords="offset points",
        ha="right" if late else "left",
        fontsize=9.5,
        weight="bold",
        color=GREEN,
    )


def _draw_rejected(axes: "Axes", marks: Sequence[TrialMark]) -> None:
    rejected = [m.number for m in marks if m.outcome == "rejected"]
    if rejected:
        axes.scatter(
            rejected,
            [0.045] * len(rejected),
            transform=axes.get_xaxis_transform(),
            marker="x",
            s=36,
            c=RED,
            linewidths=1.6,
            zorder=3,
            label="rejected, not scored",
        )


def _draw_memory(axes: "Axes", picture: TrialsPicture) -> None:
    known = [(m.number, m.memory_gb) for m in picture.marks if m.memory_gb is not None]
    highest = max((memory for _, memory in known), default=1.0)
    cap = picture.cap_gb
    ceiling = highest * 1.08 if cap is None else min(max(highest, cap) * 1.08, cap * MEMORY_CLIP)
    for number, memory in known:
        over = cap is not None and memory > cap
        axes.bar(number, min(memory, ceiling), width=0.62, color=RED if over else BLUE)
        if memory > ceiling:
            _write_inside(axes, number, ceiling, f"{memory:,.0f}")
    if cap is not None:
        _draw_cap(axes, cap)
    axes.set_ylim(0, ceiling)
    axes.set_ylabel("GB/GPU")
    _open_frame(axes)


def _write_inside(axes: "Axes", number: int, top: float, text: str) -> None:
    """The value of a bar that was cut off, at its upper end."""
    axes.annotate(
        text,
        xy=(number, top),
        xytext=(0, -3),
        textcoords="offset points",
        ha="center",
        va="top",
        fontsize=7.5,
        color="white",
        rotation=90,
    )


def _draw_cap(axes: "Axes", cap_gb: float) -> None:
    axes.axhline(cap_gb, color="black", linewidth=1.2)
    axes.annotate(
        f"cap {cap_gb:,.1f} GB",
        xy=(1.0, cap_gb),
        xycoords=("axes fraction", "data"),
        xytext=(4, 0),
        textcoords="offset points",
        ha="left",
        va="center",
        fontsize=8.5,
        annotation_clip=False,
    )


def _label_trials(axes: "Axes", marks: Sequence[TrialMark]) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("trial")
    last = marks[-1].number if marks else 0
    axes.set_xlim(-0.7, max(last, 1) + 0.7)
    if len(marks) > MAX_LABELLED:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        return
    axes.set_xticks(
        [m.number for m in marks],
        [f"{m.rule}  {m.number}" for m in marks],
        rotation=90 if len(marks) > 16 else 40,
        ha="center" if len(marks) > 16 else "right",
        rotation_mode="default" if len(marks) > 16 else "anchor",
        fontsize=8,
    )


def _open_frame(axes: "Axes") -> None:
    axes.spines[["top", "right"]].set_visible(False)
