"""What the seed plan's candidates are changes of, and how one is written down."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from projection.legality import LegalSpace, normalise, short_request
from projection.legality.check import judge
from projection.legality.neighbours import Shapes, nearest
from projection.legality.normal_form import stage_capacity
from schemas.legality import Violation
from schemas.trial import Candidate, NormalTrial, TrialConfig
from schemas.workload import Workload
from tasks.seed_plan.pins import refuse_impossible_pins, with_pins

ZERO1 = {"use_torch_fsdp2": False, "use_distributed_optimizer": True}
"""Optimizer state sharded over data parallelism."""


@dataclass(frozen=True)
class Anchor:
    """The configuration that seeds differ from: the workload's own, if proposals may be that."""

    space: LegalSpace
    trial: NormalTrial
    request: TrialConfig

    @classmethod
    def of(cls, space: LegalSpace) -> "Anchor":
        """The baseline with pinned knobs at their values, or the legal configuration nearest to it.

        A baseline that is illegal on this cluster would make every seed illegal with it. Whether it
        fits in memory is not asked.

        Raises:
            ClusterError: the pinned knobs leave nothing legal.
        """
        refuse_impossible_pins(space)
        workload, context = space.context.workload, space.context
        trial = normalise(with_pins(space), workload)
        if not judge(trial, context).legal:
            offers = nearest(trial, space, limit=1)
            trial = normalise(offers[0].config, workload) if offers else trial
        return cls.at(trial, space)

    @classmethod
    def at(cls, trial: NormalTrial, space: LegalSpace) -> "Anchor":
        """An anchor at a given trial."""
        return cls(space, trial, short_request(trial, space.context.workload))

    @property
    def workload(self) -> Workload:
        """The workload."""
        return self.space.context.workload

    def changed(self, **changes: Any) -> TrialConfig:
        """The anchor with some knobs changed.

        A count of recomputed layers that the anchor spells out is kept within the changed stages,
        as an inherited one is.
        """
        request = self.request.model_copy(update=changes)
        layers = self.request.recompute_num_layers
        if layers and "recompute_num_layers" not in changes:
            trial = normalise(request, self.workload)
            most = stage_capacity(trial.pp, trial.vpp, self.workload)
            if trial.recompute_granularity != "full":
                request = request.model_copy(
                    update={"recompute_method": None, "recompute_num_layers": None}
                )
            elif layers > most:
                request = request.model_copy(update={"recompute_num_layers": most})
        return request

    def seed(self, rule: str, tag: str, why: str, **changes: Any) -> Candidate:
        """A candidate: the anchor with some knobs changed."""
        return Candidate(config=self.changed(**changes), rule=rule, why=why, tag=tag)

    def at_shape(self, tp: int, pp: int, cp: int, ep: int) -> NormalTrial | None:
        """The legal trial of a parallel shape that is most like the anchor; None: there is none.

        Where a shape excludes the anchor's FSDP2, the distributed optimizer shards instead: without
        either, hardly anything would fit.
        """
        excluded = self.trial.use_torch_fsdp2 and (pp, ep) != (1, 1)
        shapes = self._shapes_by_zero1 if excluded else self._shapes
        return shapes.nearest(tp, pp, cp, ep)

    @cached_property
    def _shapes(self) -> Shapes:
        return Shapes(self.trial, self.space)

    @cached_property
    def _shapes_by_zero1(self) -> Shapes:
        return Shapes(normalise(self.changed(**ZERO1), self.workload), self.space)

    def violation(self, request: TrialConfig) -> Violation | None:
        """The first rule a request breaks as a proposal; None when it is legal."""
        verdict = judge(normalise(request, self.workload), self.space.context)
        return verdict.violations[0] if verdict.violations else None

    def allows(self, **changes: Any) -> bool:
        """Whether the anchor with these knobs changed is legal."""
        return self.violation(self.changed(**changes)) is None
