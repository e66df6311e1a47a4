"""How far a projection moves with what its row's source does not state."""

from typing import Any

from schemas.measured import MeasuredRow
from tasks.fidelity.predict import Predicted, Projector


def plausible_range(row: MeasuredRow, projector: Projector) -> tuple[float, float] | None:
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
