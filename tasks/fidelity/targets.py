"""What the evidence is held to, judged by rows left out of the fit that speaks of them."""

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, median
from typing import Final

from schemas.fidelity import Ranking, Target
from tasks.fidelity.predict import Predicted
from tasks.fidelity.statistics import rankings

OWN_TABLES: Final = ("megatron-a100", "vtrain")
SWEEPS: Final = "paper-sweep-"
POINTS: Final = "paper-points"
Verdict = tuple[str, bool | None] | None
"""What the rows say, and whether it meets the target; the latter None where there is no target."""


def targets(before: Sequence[Predicted], after: Sequence[Predicted] | None) -> tuple[Target, ...]:
    """Every target that `before` has rows for."""
    return tuple(_targets(before, after))


def is_public_a(row: Predicted) -> bool:
    """Quality A, from the public collection: neither the paper's nor a table of its own."""
    source = row.row.source
    return row.row.quality == "A" and not source.startswith("paper") and source not in OWN_TABLES


def _targets(before: Sequence[Predicted], after: Sequence[Predicted] | None) -> Iterator[Target]:
    for name, wanted, verdict in _HELD_TO:
        first = verdict(before)
        if first is None:
            continue
        second = verdict(after) if after is not None else None
        yield Target(
            name=name,
            wanted=wanted,
            before=first[0],
            after=second[0] if second else None,
            met=second[1] if second else None,
        )


def _of(rows: Sequence[Predicted], source: str) -> list[Predicted]:
    return [row for row in rows if row.row.source.startswith(source)]


def _sweeps(rows: Sequence[Predicted]) -> Verdict:
    found = rankings(_of(rows, SWEEPS))
    if not found:
        return None
    worst = min(each.spearman for each in found)
    regret = max(each.regret_top1 for each in found)
    said = ", ".join(f"{_short(each)} {each.spearman:.3f}" for each in found)
    return f"{said}; regret {regret:.1%}", worst >= 0.93 and regret <= 0


def _short(ranking: Ranking) -> str:
    return ranking.sweep.split("-")[0]


def _points(rows: Sequence[Predicted], *, in_full: bool) -> Verdict:
    points = [row for row in _of(rows, POINTS) if row.row.stated_in_full == in_full]
    if not points:
        return None
    sizes = [abs(row.error) for row in points]
    said = f"median {median(sizes):.1%}, worst {max(sizes):.1%} of {len(sizes)}"
    return said, median(sizes) <= 0.08 and max(sizes) <= 0.15


def _megatron(rows: Sequence[Predicted]) -> Verdict:
    sizes = [abs(row.error) for row in _of(rows, "megatron-a100")]
    if not sizes:
        return None
    said = f"mean {fmean(sizes):.1%}, worst {max(sizes):.1%} of {len(sizes)}"
    return said, fmean(sizes) <= 0.036 and max(sizes) <= 0.088


def _vtrain(rows: Sequence[Predicted]) -> Verdict:
    own = _of(rows, "vtrain")
    if not own:
        return None
    error, order = fmean(abs(row.error) for row in own), rankings(own)
    total = sum(each.rows for each in order)
    if not total:
        return f"mean {error:.1%} of {len(own)}", False
    spearman = sum(each.rows * each.spearman for each in order) / total
    said = f"mean {error:.1%} of {len(own)}, Spearman {spearman:.3f} over {len(order)} groups"
    return said, error <= 0.15 and spearman >= 0.8


def _public(rows: Sequence[Predicted]) -> Verdict:
    sizes = [abs(row.error) for row in rows if is_public_a(row)]
    if not sizes:
        return None
    return f"median {median(sizes):.1%} of {len(sizes)}", median(sizes) <= 0.12


def _points_in_full(rows: Sequence[Predicted]) -> Verdict:
    return _points(rows, in_full=True)


def _other_points(rows: Sequence[Predicted]) -> Verdict:
    found = _points(rows, in_full=False)
    return None if found is None else (found[0], None)


_HELD_TO: Final[tuple[tuple[str, str, Callable[[Sequence[Predicted]], Verdict]], ...]] = (
    ("rank sweeps", "Spearman >= 0.93 each, no top-1 regret", _sweeps),
    ("paper points stated in full", "median <= 8 %, worst <= 15 %", _points_in_full),
    ("paper points with assumptions", "(listed apart)", _other_points),
    ("megatron_a100", "mean <= 3.6 %, worst <= 8.8 %", _megatron),
    ("vTrain", "mean <= 15 %, Spearman >= 0.8", _vtrain),
    ("public rows, quality A", "median <= 12 %", _public),
)
