"""What the oracle says of measured rows, under one set of calibrations."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from projection.gemm import gemm_model
from projection.oracle import Oracle
from projection.profiles import achievable
from schemas.errors import RefoldError
from schemas.evaluation import Evaluation, SignatureHashes
from schemas.gpu import Achievable
from schemas.measured import MeasuredRow
from schemas.search import SearchSpec
from tasks.fidelity.cases import Case, case_of

Calibrations = Mapping[str, Achievable]
"""Achieved rates by GPU name; a GPU that is not there has the published ones."""
GemmBackend = Literal["auto", "origami", "tile"]
AGREE = 0.05
"""Where a source prints both, its rate and its iteration time say the same within this."""
UNSIGNED = SignatureHashes(model="0" * 16, cluster="0" * 16, stack="0" * 16)
"""These evaluations are never stored or cached."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """A row beside its projection. Errors are projected over measured, less one."""

    row: MeasuredRow
    evaluation: Evaluation

    @property
    def measured(self) -> float:
        """The figure the source prints: iteration in ms where it does, else tokens/s/GPU."""
        figure = self.row.iteration_ms or self.row.tokens_per_s_per_gpu
        assert figure is not None
        return figure

    @property
    def projected(self) -> float:
        """The same figure as the oracle has it."""
        by_time = self.row.iteration_ms is not None
        found = self.evaluation.iteration_ms if by_time else self.evaluation.tokens_per_s_per_gpu
        assert found is not None
        return found

    @property
    def error(self) -> float:
        """Projected over measured, less one."""
        return self.projected / self.measured - 1

    @property
    def measured_rate(self) -> float:
        """Measured tokens/s/GPU."""
        if self.row.tokens_per_s_per_gpu is not None:
            return self.row.tokens_per_s_per_gpu
        return self.projected_rate * self.projected / self.measured

    @property
    def projected_rate(self) -> float:
        """Projected tokens/s/GPU."""
        rate = self.evaluation.tokens_per_s_per_gpu
        assert rate is not None
        return rate


@dataclass(frozen=True, slots=True)
class Refused:
    """A row the oracle would not project, and why."""

    row: MeasuredRow
    reason: str


class Projector:
    """Projects rows, keeping one oracle per workload and cluster: rows of a table share both."""

    def __init__(
        self,
        calibrations: Calibrations | None = None,
        backend: GemmBackend = "auto",
        *,
        published: bool = True,
    ) -> None:
        """`published`: a GPU without an entry has the published rates; else what ships for it."""
        self._calibrations = calibrations or {}
        self._published = published
        self._search = SearchSpec(gemm_backend=backend)
        self._oracles: dict[str, Oracle] = {}
        self.gemm_models: dict[str, str] = {}
        """GEMM model in use, by GPU asked about."""

    def evaluate(self, case: Case) -> Evaluation:
        """The oracle's answer."""
        return self.oracle(case).project(case.trial)

    def time_ms(self, case: Case) -> float:
        """Iteration time alone, of a case that is legal."""
        return self.oracle(case).iteration_ms(case.trial)

    def oracle(self, case: Case) -> Oracle:
        """The oracle of the case's workload, whatever trial it runs, and cluster."""
        key = case.workload.model_dump_json(exclude={"baseline", "source", "name"})
        key += case.cluster.model_dump_json()
        known = self._oracles.get(key)
        if known is None:
            gpu, backend = case.cluster.gpu, self._search.gemm_backend
            gemm = gemm_model(gpu, backend).name
            self.gemm_models[gpu.name] = gemm
            achieved = self._calibrations.get(gpu.name)
            if achieved is None and self._published:
                achieved = achievable(gpu, gemm)
            known = self._oracles[key] = Oracle(
                case.workload,
                case.cluster,
                self._search,
                signature=UNSIGNED,
                achieved=achieved,
            )
        return known

    def row(
        self, row: MeasuredRow, changes: Mapping[str, Any] | None = None
    ) -> Predicted | Refused:
        """One row, with `changes` to what is assumed of it."""
        try:
            evaluation = self.evaluate(case_of(row, changes))
        except RefoldError as error:
            return Refused(row, str(error))
        if not evaluation.legal:
            return Refused(row, evaluation.reason or "illegal")
        found = Predicted(row, evaluation)
        if row.iteration_ms is not None and row.tokens_per_s_per_gpu is not None:
            # Rate times time is the batch, and has nothing of the projection in it.
            batch = found.measured_rate * found.measured / found.projected_rate / found.projected
            if abs(batch - 1) > AGREE:
                return Refused(
                    row, "its iteration time (ms) and its tokens/s/GPU are not of one run"
                )
        return found
