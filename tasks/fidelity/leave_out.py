"""Leave one group out: rows under factors that never saw their group."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from projection.gemm import gemm_model
from projection.profiles import gpu_profile
from schemas.gpu import Achievable
from schemas.measured import Group, MeasuredRow
from tasks.fidelity.predict import Calibrations, GemmBackend, Predicted, Projector, Refused

LeftOutRates = Callable[[MeasuredRow, str], Achievable]
"""Rates for a row's GPU over a GEMM model, from a fit without the row's group."""
Fit = Callable[[Sequence[MeasuredRow]], Calibrations]
"""Rows to fit → achieved rates by GPU. A GPU without rows must be answered for too: with its
family's factors."""


class LeftOutProjector:
    """Projects each row under factors that never saw its group."""

    def __init__(self, rates: LeftOutRates, backend: GemmBackend = "auto") -> None:
        self._rates, self._backend = rates, backend
        self._projectors: dict[Group, Projector] = {}

    def row(
        self, row: MeasuredRow, changes: Mapping[str, Any] | None = None
    ) -> Predicted | Refused:
        """One row, with `changes` to what is assumed of it."""
        projector = self._projectors.get(row.group)
        if projector is None:
            gemm = gemm_model(gpu_profile(row.gpu), self._backend).name
            achieved = {row.gpu: self._rates(row, gemm)}
            projector = self._projectors[row.group] = Projector(achieved, self._backend)
        return projector.row(row, changes)


def refitting(rows: Sequence[MeasuredRow], fit: Fit) -> LeftOutRates:
    """Rates by fitting `rows` anew for every group that is asked about, without it."""
    known: dict[Group, Calibrations] = {}

    def rates(row: MeasuredRow, _gemm: str) -> Achievable:
        if row.group not in known:
            known[row.group] = fit([other for other in rows if other.group != row.group])
        return known[row.group][row.gpu]

    return rates


def only_group_of_its_gpu(rows: Sequence[MeasuredRow]) -> set[Group]:
    """Groups without which no row of their GPU is left."""
    by_gpu: dict[str, set[Group]] = {}
    for row in rows:
        by_gpu.setdefault(row.gpu, set()).add(row.group)
    return {group for found in by_gpu.values() if len(found) == 1 for group in found}
