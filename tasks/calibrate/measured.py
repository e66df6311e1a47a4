"""Measured rows as observations, and the oracle as what projects them."""

from collections.abc import Iterable, Mapping, Sequence

from projection.calibration import nearest_published, with_factors
from projection.gemm import gemm_model
from projection.profiles import achievable, gpu_profile
from schemas.calibration import CalibratedPrecision
from schemas.measured import MeasuredRow
from tasks.calibrate.observation import Factors, Observation
from tasks.fidelity.cases import Case, case_of, left_out
from tasks.fidelity.predict import GemmBackend, Predicted, Projector

ASSUMED_TRUST = 0.5
"""Of a row whose source does not state every setting that moves its time most."""


class MeasuredRows:
    """Rows that can be compared with a projection, ready to be fitted."""

    def __init__(self, rows: Iterable[MeasuredRow], backend: GemmBackend) -> None:
        self._backend = backend
        self._cases: dict[str, Case] = {}
        self.observations: list[Observation] = []
        self.refused: dict[str, str] = {}
        """Row id → why no projection stands beside it."""
        projector = Projector(backend=backend)
        for row in rows:
            self._add(row, projector)

    def _add(self, row: MeasuredRow, projector: Projector) -> None:
        reason = left_out(row)
        if reason is None:
            found = projector.row(row)
            if isinstance(found, Predicted):
                self._cases[row.id] = case_of(row)
                self.observations.append(observation(found))
                return
            reason = found.reason
        self.refused[row.id] = reason

    def project(
        self, observations: Sequence[Observation], factors: Mapping[str, Factors]
    ) -> list[float]:
        """Iteration times under `factors` per GPU."""
        achieved = {}
        for name, values in factors.items():
            gpu = gpu_profile(name)
            published = achievable(
                gpu_profile(nearest_published(gpu)), gemm_model(gpu, self._backend).name
            )
            achieved[name] = with_factors(published, values)
        projector = Projector(achieved, self._backend)
        return [projector.time_ms(self._cases[each.row]) for each in observations]


def observation(found: Predicted) -> Observation:
    """The observation of a row that was projected."""
    row, evaluation = found.row, found.evaluation
    assert evaluation.iteration_ms is not None
    # A printed rate and the projected one compare as times do, the other way round.
    by_time = row.iteration_ms is not None
    ratio = 1 + found.error if by_time else 1 / (1 + found.error)
    precision: CalibratedPrecision = "fp8" if row.precision == "fp8" else "bf16"
    return Observation(
        row=row.id,
        gpu=row.gpu,
        group=" ".join(map(str, row.group)),
        source=row.source,
        precision=precision,
        measured_ms=evaluation.iteration_ms / ratio,
        trust=1.0 if row.stated_in_full and row.quality == "A" else ASSUMED_TRUST,
    )
