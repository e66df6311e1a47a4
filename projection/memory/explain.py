"""A memory projection taken apart: every line of every rank, and the numbers it is made of.

The terms of a line add up to the line's own figure; a test holds them to it.
"""

from dataclasses import dataclass

from projection.degrees import Degrees
from projection.memory.in_flight import high_water
from projection.memory.lines import LINES, Line, line, parts
from projection.memory.model import MemoryModel
from projection.memory.report import MemoryReport
from projection.memory.terms import TERMS, Pieces, Term
from projection.schedules import PipelineSchedule
from projection.work.catalog import Catalog
from projection.work.context import work_shape
from projection.work.recompute import selective
from schemas.errors import UserError
from schemas.trial import NormalTrial
from schemas.workload import Workload


@dataclass(frozen=True, slots=True)
class Explained:
    """One line of one rank: 2^30 bytes, its description, and the terms behind it."""

    rank: int
    name: str
    gb: float
    line: Line
    terms: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class RankSummary:
    """One rank in a row: its parts and total in 2^30 bytes, and the phase it peaks in."""

    rank: int
    parts: dict[str, float]
    total_gb: float
    phase: str
    phases_gb: dict[str, float]


class MemoryExplanation:
    """The memory of one trial, line by line."""

    def __init__(
        self,
        workload: Workload,
        model: MemoryModel,
        catalog: Catalog,
        trial: NormalTrial,
        sizes: Degrees,
        schedule: PipelineSchedule,
    ) -> None:
        """Raises WorkloadError when the trial has no pipeline."""
        self.report: MemoryReport = model.report(trial, sizes, schedule)
        shape = work_shape(trial, workload, routed_load=model.imbalance(trial))
        recompute = selective(trial)
        rows = model.chunk_rows(trial, shape)
        states = [high_water(schedule.live_states[r], rows[r]).state for r in range(trial.pp)]
        self._ranks = tuple(
            Pieces(
                parameters=model.parameters(trial, shape)[rank],
                context=model.context(trial, sizes, shape),
                chunks=rows[rank],
                plans=catalog.plans(trial)[rank],
                in_flight=states[rank].whole,
                waiting=states[rank].for_weights,
                work_of=lambda kind: catalog.work(catalog.key(kind, shape)),
                layer_of=model.layers(shape, recompute),
                recompute=recompute,
                memory=self.report.ranks[rank],
            )
            for rank in range(trial.pp)
        )

    def summary(self) -> tuple[RankSummary, ...]:
        """Every rank in a row, in pipeline order."""
        return tuple(
            RankSummary(row.rank, parts(row.components), row.total_gb, row.phase, row.phases_gb)
            for row in self.report.ranks
        )

    def lines(self, rank: int) -> tuple[Explained, ...]:
        """The lines of one rank, largest first. Raises UserError for a rank that is none."""
        if not 0 <= rank < len(self._ranks):
            raise UserError(
                f"there is no pipeline rank {rank}", hint=f"they are 0 to {len(self._ranks) - 1}"
            )
        found = self._ranks[rank].memory.components
        ordered = sorted(found, key=lambda name: -found[name])
        return tuple(self._explained(rank, name) for name in ordered)

    def component(self, name: str) -> tuple[Explained, ...]:
        """One line on every rank that has it. Raises UserError for a name that is none."""
        line(name)
        return tuple(
            self._explained(rank, name)
            for rank, pieces in enumerate(self._ranks)
            if name in pieces.memory.components
        )

    def _explained(self, rank: int, name: str) -> Explained:
        pieces = self._ranks[rank]
        terms = tuple(term for term in TERMS[name](pieces) if term.total)
        return Explained(rank, name, pieces.memory.components[name], LINES[name], terms)
