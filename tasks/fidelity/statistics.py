"""Statistics of projected against measured: errors of rows, and the order of a sweep's rows."""

from collections.abc import Iterable, Sequence
from itertools import combinations
from statistics import fmean, median, pstdev
from typing import Final

from schemas.fidelity import Accuracy, Discordance, Judged, Ranking
from tasks.fidelity.predict import Predicted

FAR: Final = 0.09
"""Measured further apart than this, two configurations are told apart by any honest repetition."""
LEAST_ROWS: Final = 4
"""Fewer rows than this have no order worth a correlation."""


def judged(rows: Sequence[Predicted]) -> Judged:
    """Errors of `rows`, and the order within each of their sweeps."""
    return Judged(accuracy=accuracy([row.error for row in rows]), rankings=tuple(rankings(rows)))


def accuracy(errors: Sequence[float]) -> Accuracy:
    """Statistics of at least one error."""
    sizes = sorted(abs(error) for error in errors)
    return Accuracy(
        rows=len(errors),
        mean=fmean(sizes),
        median=median(sizes),
        bias=fmean(errors),
        p90=_quantile(sizes, 0.9),
        worst=max(errors, key=abs),
    )


def rankings(rows: Iterable[Predicted]) -> list[Ranking]:
    """One ranking per sweep that has enough rows which differ, largest first."""
    sweeps: dict[tuple[str, str], list[Predicted]] = {}
    for row in rows:
        if row.row.sweep is not None:
            sweeps.setdefault((row.row.source, row.row.sweep), []).append(row)
    found = [ranking(name, each) for (_, name), each in sweeps.items() if _has_order(each)]
    return sorted(found, key=lambda each: (-each.rows, each.sweep))


def _has_order(rows: Sequence[Predicted]) -> bool:
    """Enough rows, and neither all measured nor all projected alike."""
    measured = {row.measured_rate for row in rows}
    projected = {row.projected_rate for row in rows}
    return len(rows) >= LEAST_ROWS and len(measured) > 1 and len(projected) > 1


def ranking(sweep: str, rows: Sequence[Predicted]) -> Ranking:
    """The order of `rows`, which must differ in both figures."""
    measured = [row.measured_rate for row in rows]
    projected = [row.projected_rate for row in rows]
    ratios = [mine / real for mine, real in zip(projected, measured, strict=True)]
    wrong = _discordant(rows)
    pairs = [(a, b) for a, b in combinations(rows, 2) if a.measured_rate != b.measured_rate]
    far = [(a, b) for a, b in pairs if _gap(a, b) > FAR]
    far_wrong = sum(each.gap > FAR for each in wrong)
    return Ranking(
        sweep=sweep,
        source=rows[0].row.source,
        rows=len(rows),
        spearman=_pearson(_ranks(measured), _ranks(projected)),
        kendall=_kendall(measured, projected),
        offset=median(ratios),
        offset_cv=pstdev(ratios) / fmean(ratios),
        regret_top1=_regret(rows, 1),
        regret_top3=_regret(rows, 3),
        concordant=len(pairs) - len(wrong),
        pairs=len(pairs),
        concordance_far=1 - far_wrong / len(far) if far else None,
        discordant=tuple(sorted(wrong, key=lambda each: -each.gap)),
    )


def _gap(a: Predicted, b: Predicted) -> float:
    low, high = sorted((a.measured_rate, b.measured_rate))
    return high / low - 1


def _discordant(rows: Sequence[Predicted]) -> list[Discordance]:
    """Pairs not in the measured order; a projected tie of what was measured apart is one."""
    found = []
    for a, b in combinations(rows, 2):
        fast, slow = (a, b) if a.measured_rate > b.measured_rate else (b, a)
        if fast.measured_rate > slow.measured_rate and fast.projected_rate <= slow.projected_rate:
            found.append(Discordance(faster=fast.row.id, slower=slow.row.id, gap=_gap(a, b)))
    return found


def _regret(rows: Sequence[Predicted], picks: int) -> float:
    """What is lost by measuring only the `picks` projected best; ties go against us."""
    best = max(row.measured_rate for row in rows)
    order = sorted(rows, key=lambda row: (-row.projected_rate, row.measured_rate))
    return 1 - max(row.measured_rate for row in order[:picks]) / best


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Linear interpolation between the two nearest of `ordered`."""
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def _ranks(values: Sequence[float]) -> list[float]:
    """Rank of each value from 1, ties sharing their mean rank."""
    order = sorted(values)
    first: dict[float, int] = {}
    for at, value in enumerate(order):
        first.setdefault(value, at)
    return [first[value] + (order.count(value) + 1) / 2 for value in values]


def _pearson(a: Sequence[float], b: Sequence[float]) -> float:
    mean_a, mean_b = fmean(a), fmean(b)
    da, db = [x - mean_a for x in a], [x - mean_b for x in b]
    cross = sum(x * y for x, y in zip(da, db, strict=True))
    return float(cross / (sum(x * x for x in da) * sum(y * y for y in db)) ** 0.5)


def _kendall(a: Sequence[float], b: Sequence[float]) -> float:
    """Tau-b: (concordant - discordant) over the geometric mean of the untied pairs of each."""
    score = untied_a = untied_b = 0
    for (x, u), (y, v) in combinations(zip(a, b, strict=True), 2):
        one, other = (x > y) - (x < y), (u > v) - (u < v)
        score += one * other
        untied_a += one != 0
        untied_b += other != 0
    return float(score / (untied_a * untied_b) ** 0.5)
