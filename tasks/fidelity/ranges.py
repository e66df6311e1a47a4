"""How far a projection moves with what its row's source does not state."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from schemas.fidelity import Alternative
from schemas.measured import MeasuredRow
from tasks.fidelity.predict import Predicted, Refused
from tasks.fidelity.statistics import rankings


class Projects(Protocol):
    """Whoever answers for a row."""

    def row(
        self, row: MeasuredRow, changes: Mapping[str, Any] | None = None
    ) -> Predicted | Refused:
        """The row's projection, with `changes` to what is assumed of it."""
        ...


def plausible_range(row: MeasuredRow, projector: Projects) -> tuple[float, float] | None:
    """Least and most projected over the plausible values of what is assumed of `row`.

    Each assumed setting is moved alone, then all of them together to where each alone was least and
    most. None where nothing assumed has another plausible value. Values the oracle refuses are
    passed over.
    """
    asked = {name: each for name, each in row.assumed.items() if len(each.plausible) > 1}
    here = projector.row(row)
    if not asked or not isinstance(here, Predicted):
        return None
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    found = [here.projected]
    for name, each in asked.items():
        tried = [(here.projected, each.value)]
        for value in each.plausible:
            if value != each.value:
                there = projector.row(row, {name: value})
                if isinstance(there, Predicted):
                    tried.append((there.projected, value))
        found += [figure for figure, _ in tried]
        low[name] = min(tried, key=lambda pair: pair[0])[1]
        high[name] = max(tried, key=lambda pair: pair[0])[1]
    for changes in (low, high):
        there = projector.row(row, changes)
        if isinstance(there, Predicted):
            found.append(there.projected)
    return min(found), max(found)


def alternatives(rows: Sequence[MeasuredRow], projector: Projects) -> Iterator[Alternative]:
    """The order of one sweep's rows where another plausible value is assumed of all of them."""
    asked: dict[str, dict[str, Any]] = {}
    for row in rows:
        for name, each in row.assumed.items():
            for value in each.plausible:
                if value != each.value:
                    asked.setdefault(name, {})[str(value)] = value
    for name, values in asked.items():
        for said, value in values.items():
            answers = [projector.row(row, {name: value}) for row in rows]
            projected = [answer for answer in answers if isinstance(answer, Predicted)]
            for found in rankings(projected):
                yield Alternative(
                    sweep=found.sweep,
                    setting=name,
                    value=said,
                    rows=found.rows,
                    spearman=found.spearman,
                    regret_top1=found.regret_top1,
                )
