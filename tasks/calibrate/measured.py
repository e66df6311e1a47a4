"""Measured runs as observations, and the oracle as what projects them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from projection.calibration import nearest_published, with_factors
from projection.gemm import gemm_model
from projection.profiles import achievable, gpu_profile
from schemas.calibration import CalibratedPrecision
from schemas.cluster import Cluster
from schemas.evaluation import Evaluation
from schemas.gpu import GpuProfile
from schemas.measured import MeasuredRow
from schemas.trial import NormalTrial
from schemas.workload import Workload
from tasks.calibrate.observation import Factors, Observation
from tasks.calibrate.shipped import group_name
from tasks.fidelity.cases import Case, case_of, left_out
from tasks.fidelity.predict import GemmBackend, Predicted, Projector, Refused

FARTHEST = 20.0
"""A time this many times as long or as short as published rates make it is not of this run: its
unit is wrong, or its settings are."""
ASSUMED_TRUST = 0.5
"""Of a row whose source does not state every setting that moves its time most."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Measured runs that can be compared with a projection, ready to be fitted."""

    observations: tuple[Observation, ...]
    cases: Mapping[str, Case]
    """By row."""
    refused: Mapping[str, str]
    """Row → why no projection stands beside it."""
    backend: GemmBackend

    @property
    def gpus(self) -> tuple[GpuProfile, ...]:
        """The GPUs that were measured, by name."""
        found = {case.cluster.gpu.name: case.cluster.gpu for case in self.cases.values()}
        return tuple(found[name] for name in sorted(found))

    def project(
        self, observations: Sequence[Observation], factors: Mapping[str, Factors]
    ) -> list[float]:
        """Iteration times in ms under `factors` per GPU."""
        known = {gpu.name: gpu for gpu in self.gpus}
        achieved = {}
        for name in factors.keys() & known.keys():
            over = gpu_profile(nearest_published(known[name]))
            published = achievable(over, gemm_model(known[name], self.backend).name)
            achieved[name] = with_factors(published, factors[name])
        projector = Projector(achieved, self.backend)
        return [projector.time_ms(self.cases[each.row]) for each in observations]


def from_rows(rows: Iterable[MeasuredRow], backend: GemmBackend) -> Measured:
    """Rows of a table, or of the shipped evidence."""
    observations, cases, refused = [], {}, {}
    projector = Projector(backend=backend)
    for row in rows:
        reason = left_out(row)
        if reason is None:
            found = projector.row(row)
            reason = found.reason if isinstance(found, Refused) else _implausible(found.error)
            if isinstance(found, Predicted) and reason is None:
                observations.append(_observation(found))
                cases[row.id] = case_of(row)
                continue
        assert reason is not None
        refused[row.id] = reason
    return Measured(tuple(observations), cases, refused, backend)


def _implausible(error: float) -> str | None:
    """Why a row whose projection is off by `error` cannot be what it says; None: it can."""
    if 1 / FARTHEST <= 1 + error <= FARTHEST:
        return None
    return f"more than {FARTHEST:g} times off published rates: wrong unit, or wrong settings"


def from_run(
    run_id: str,
    workload: Workload,
    cluster: Cluster,
    evaluations: Mapping[int, Evaluation],
    backend: GemmBackend,
) -> Measured:
    """Trials of a run that were measured (`evaluations` by trial number), under its own inputs."""
    observations, cases = [], {}
    for number, evaluation in evaluations.items():
        if evaluation.provenance != "measured" or evaluation.iteration_ms is None:
            continue
        trial = NormalTrial.model_validate(evaluation.config)
        precision: CalibratedPrecision = "bf16" if trial.fp8 == "none" else "fp8"
        row = f"{run_id}#{number}"
        cases[row] = Case(workload.model_copy(update={"baseline": trial}), cluster)
        gpu = cluster.gpu.name
        group = f"{workload.architecture.name} {gpu} {precision} {cluster.world_size}"
        observations.append(
            Observation(row, gpu, group, run_id, precision, evaluation.iteration_ms)
        )
    return Measured(tuple(observations), cases, {}, backend)


def _observation(found: Predicted) -> Observation:
    row, evaluation = found.row, found.evaluation
    assert evaluation.iteration_ms is not None
    # A printed rate and the projected one compare as times do, the other way round.
    by_time = row.iteration_ms is not None
    ratio = 1 + found.error if by_time else 1 / (1 + found.error)
    precision: CalibratedPrecision = "fp8" if row.precision == "fp8" else "bf16"
    return Observation(
        row=row.id,
        gpu=row.gpu,
        group=group_name(row),
        source=row.source,
        precision=precision,
        measured_ms=evaluation.iteration_ms / ratio,
        trust=1.0 if row.stated_in_full and row.quality == "A" else ASSUMED_TRUST,
    )
