"""A fidelity report as tables of text: what the verb prints and the page shows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from schemas.fidelity import Fidelity, Judged, Ranking, RowFidelity

FEW: Final = 3
"""A source with more sweeps than this is summed up in one line."""
WIDEST: Final = 6
"""Discordant pairs shown of a sweep."""


@dataclass(frozen=True, slots=True)
class Table:
    """Columns (`>`: figures, `|`: never broken) and rows of cells."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def accuracy_table(report: Fidelity) -> Table:
    """Errors per source, before and, where there is one, after."""
    columns: tuple[str, ...] = (
        "source|",
        "rows>",
        "in full>",
        "mean>",
        "median>",
        "bias>",
        "p90>",
        "worst>",
    )
    columns += () if report.fitted is None else ("mean'>", "median'>", "worst'>")
    rows = []
    for each in report.sources:
        a = each.before.accuracy
        cells = [each.source, str(a.rows), str(each.stated_in_full)]
        cells += [percent(a.mean), percent(a.median), signed(a.bias)]
        cells += [percent(a.p90), signed(a.worst)]
        if each.after is not None:
            b = each.after.accuracy
            cells += [percent(b.mean), percent(b.median), signed(b.worst)]
        rows.append(tuple(cells))
    return Table("errors, projected over measured less one", columns, tuple(rows))


def ranking_table(report: Fidelity) -> Table:
    """The order within sweeps: one line each, or one for all of a source that has many."""
    columns: tuple[str, ...] = (
        "sweep",
        "rows>",
        "Spearman>",
        "Kendall>",
        "k (cv)>",
        "top-1>",
        "top-3>",
        "> 9 %>",
    )
    columns += () if report.fitted is None else ("Spearman'>", "top-1'>")
    rows = []
    for each in report.sources:
        after = each.after.rankings if each.after is not None else None
        rows += [
            _ranking_cells(name, before, None if after is None else _same(name, after))
            for name, before in _lines(each.before, each.source)
        ]
    return Table("order within sweeps", columns, tuple(rows))


def _lines(judged: Judged, source: str) -> Iterator[tuple[str, Sequence[Ranking]]]:
    if len(judged.rankings) > FEW:
        yield f"{source}: {len(judged.rankings)} sweeps", judged.rankings
    else:
        for each in judged.rankings:
            yield each.sweep, [each]


def _same(name: str, after: Sequence[Ranking]) -> Sequence[Ranking]:
    one = [each for each in after if each.sweep == name]
    return one or (after if " sweeps" in name else ())


def _ranking_cells(
    name: str, before: Sequence[Ranking], after: Sequence[Ranking] | None
) -> tuple[str, ...]:
    far = [each.concordance_far for each in before if each.concordance_far is not None]
    cells = [
        name,
        str(sum(each.rows for each in before)),
        f"{_mean(before, 'spearman'):.3f}",
        f"{_mean(before, 'kendall'):.3f}",
        f"{_mean(before, 'offset'):.2f} ({_mean(before, 'offset_cv'):.1%})",
        percent(_mean(before, "regret_top1")),
        percent(_mean(before, "regret_top3")),
        percent(fmean(far)) if far else "-",
    ]
    if after:
        cells += [f"{_mean(after, 'spearman'):.3f}", percent(_mean(after, "regret_top1"))]
    elif after is not None:
        cells += ["-", "-"]
    return tuple(cells)


def _mean(rankings: Sequence[Ranking], field: str) -> float:
    """Mean over sweeps, weighted by their rows."""
    total = sum(each.rows for each in rankings)
    return float(sum(each.rows * getattr(each, field) for each in rankings) / total)


def discordance_table(report: Fidelity) -> Table:
    """Pairs of small sweeps in the wrong order, the widest measured gaps first."""
    rows = []
    for each in report.sources:
        judged = each.after or each.before
        if len(judged.rankings) > FEW:
            continue
        for ranking in judged.rankings:
            if ranking.discordant:
                rows.append((ranking.sweep, str(len(ranking.discordant)), _widest(ranking)))
    return Table(
        "pairs in the wrong order (faster > slower, measured gap)",
        ("sweep", "pairs>", "widest"),
        tuple(rows),
    )


def _widest(ranking: Ranking) -> str:
    def short(name: str) -> str:
        return name.removeprefix(f"{ranking.sweep}-").removeprefix(f"{ranking.source}-")

    said = [
        f"{short(pair.faster)} > {short(pair.slower)} ({percent(pair.gap)})"
        for pair in ranking.discordant[:WIDEST]
    ]
    return ", ".join(said) + (", ..." if len(ranking.discordant) > WIDEST else "")


def target_table(report: Fidelity) -> Table:
    """What the evidence is held to."""
    columns: tuple[str, ...] = ("target", "wanted", "published rates")
    columns += () if report.fitted is None else ("left out", "met|")
    rows = []
    for each in report.targets:
        cells = [each.name, each.wanted, each.before]
        if report.fitted is not None:
            cells += [each.after or "-", {True: "yes", False: "no", None: "-"}[each.met]]
        rows.append(tuple(cells))
    return Table("targets", columns, tuple(rows))


def alternative_table(report: Fidelity) -> Table:
    """Rank sweeps under other plausible values of what is assumed of all their rows."""
    rows = [
        (
            each.sweep,
            f"{each.setting} {each.value}",
            str(each.rows),
            f"{each.spearman:.3f}",
            percent(each.regret_top1),
        )
        for each in report.alternatives
    ]
    columns = ("sweep", "assuming", "rows>", "Spearman>", "top-1>")
    return Table("rank sweeps under other assumptions", columns, tuple(rows))


def exclusion_table(report: Fidelity) -> Table:
    """Every row that is left out, by reason."""
    by_reason: dict[str, list[tuple[str, int]]] = {}
    for each in report.exclusions:
        by_reason.setdefault(each.reason, []).append((each.source, each.rows))
    rows = [
        (reason, str(sum(count for _, count in found)), ", ".join(name for name, _ in found))
        for reason, found in by_reason.items()
    ]
    rows.sort(key=lambda row: (-int(row[1]), row[0]))
    return Table("rows left out", ("reason", "rows>", "sources"), tuple(rows))


def row_table(report: Fidelity, rows: Sequence[RowFidelity]) -> Table:
    """Rows one by one, with the range that what is assumed of them leaves open."""
    columns: tuple[str, ...] = (
        "row",
        "unit|",
        "measured>",
        "projected>",
        "error>",
        "range of the error>",
    )
    columns += () if report.fitted is None else ("error'>",)
    cells = []
    for row in rows:
        bounds = "-"
        if row.low is not None and row.high is not None:
            low, high = row.low / row.measured - 1, row.high / row.measured - 1
            bounds = f"{signed(low)} .. {signed(high)}"
        line = [row.id, row.unit, figure(row.measured), figure(row.before)]
        line += [signed(row.before / row.measured - 1), bounds]
        if report.fitted is not None:
            line.append("-" if row.after is None else signed(row.after / row.measured - 1))
        cells.append(tuple(line))
    return Table("rows", columns, tuple(cells))


def percent(value: float) -> str:
    """A share without its sign."""
    return f"{value:.1%}"


def signed(value: float) -> str:
    """A share with its sign."""
    return f"{value:+.1%}"


def figure(value: float) -> str:
    """A time or a rate, to four digits."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
