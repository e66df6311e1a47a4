"""How uneven the experts' load may become before a trial no longer fits."""

from collections.abc import Callable

TOLERANCE = 1e-3
"""Of the ratio: finer than anybody measures it."""


def largest_that_fits(spare: Callable[[float], float], limit: float) -> float | None:
    """The largest ratio of 1 to `limit` with spare(ratio) ≥ 0, to a thousandth; None without one.

    `spare` falls with the ratio: memory at the busiest rank only grows with its load. Bisected, as
    memory is a maximum over ranks and moments with a kink wherever another becomes the worst.
    """
    if spare(1.0) < 0:
        return None
    if spare(limit) >= 0:
        return limit
    fits, too_much = 1.0, limit
    while too_much - fits > TOLERANCE:
        middle = (fits + too_much) / 2
        if spare(middle) >= 0:
            fits = middle
        else:
            too_much = middle
    return fits
