"""Leave one group out: what factors that never saw a group say of it."""

from collections.abc import Callable, Container, Iterator, Sequence

from schemas.measured import Group, MeasuredRow
from tasks.fidelity.predict import Calibrations, GemmBackend, Predicted, Projector, Refused

Fit = Callable[[Sequence[MeasuredRow]], Calibrations]
"""Rows to fit → achieved rates by GPU. A GPU that only the left-out group has must be answered for
too: with its family's factors."""


def groups(rows: Sequence[MeasuredRow]) -> dict[Group, list[MeasuredRow]]:
    """Rows by model, GPU, precision and cluster size, across all sources."""
    found: dict[Group, list[MeasuredRow]] = {}
    for row in rows:
        found.setdefault(row.group, []).append(row)
    return found


def left_out_projections(
    rows: Sequence[MeasuredRow],
    fit: Fit,
    backend: GemmBackend = "auto",
    *,
    only: Container[Group] | None = None,
) -> Iterator[Predicted | Refused]:
    """Each row (of the groups in `only`) as projected by factors fitted to all other groups."""
    for group, own in groups(rows).items():
        if only is not None and group not in only:
            continue
        others = [row for row in rows if row.group != group]
        projector = Projector(fit(others), backend)
        yield from (projector.row(row) for row in own)


def only_group_of_its_gpu(rows: Sequence[MeasuredRow]) -> set[Group]:
    """Groups without which no row of their GPU is left."""
    by_gpu: dict[str, set[Group]] = {}
    for row in rows:
        by_gpu.setdefault(row.gpu, set()).add(row.group)
    return {group for found in by_gpu.values() if len(found) == 1 for group in found}
