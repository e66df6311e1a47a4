"""Pipeline schedules run for a person to look at: on plain durations, or on a workload's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from projection.legality import check, normalise
from projection.memory.live import LiveMemory
from projection.oracle import Oracle
from projection.schedules import (
    Curve,
    EqualStages,
    Timeline,
    held_over_time,
    summary,
    usual_vpp,
)
from schemas.errors import ScheduleError
from schemas.evaluation import Evaluation
from schemas.trial import NormalTrial, Schedule, TrialConfig
from tasks.draw_schedule import SchedulePicture, milliseconds
from tasks.inputs import Inputs


@dataclass(frozen=True, slots=True)
class ImpossibleRun:
    """A schedule that cannot run, and why."""

    schedule: str
    vpp: int
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"schedule": self.schedule, "vpp": self.vpp, "impossible": self.reason}


@dataclass(frozen=True, slots=True)
class ScheduleRun:
    """A schedule as it ran. `memory` and `evaluation` where a workload's trial stands behind it."""

    timeline: Timeline
    subject: str = ""
    """Whose pipeline it is, in words."""
    memory: LiveMemory | None = None
    evaluation: Evaluation | None = None
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the run in numbers; of a workload's, times are ms and memory is per rank."""
        numbers: dict[str, Any] = dict(summary(self.timeline))
        if self.evaluation is not None:
            numbers["memory_gb"] = [rank.total_gb for rank in self.evaluation.memory_by_rank_gb]
            for name in ("cap_gb", "fits", "iteration_ms", "tokens_per_s_per_gpu"):
                numbers[name] = getattr(self.evaluation, name)
            numbers["warnings"] = self.warnings
        return numbers

    def held(self) -> tuple[Curve, ...]:
        """What every rank holds over time: all its memory in GB, or microbatches in flight."""
        if self.memory is None:
            return held_over_time(self.timeline)
        alive = held_over_time(self.timeline, self.memory.saved, self.memory.for_weights)
        return tuple(
            tuple((at, base + amount) for at, amount in curve)
            for base, curve in zip(self.memory.base, alive, strict=True)
        )

    @property
    def unit(self) -> str:
        """Of what `held` says."""
        return "microbatches" if self.memory is None else "GB"

    def picture(self) -> SchedulePicture:
        """The run as it is drawn."""
        timeline, schedule = self.timeline, self.timeline.schedule
        size = f"PP {schedule.pp}, VPP {schedule.vpp}, {schedule.num_microbatches} microbatches"
        facts = [
            f"makespan {milliseconds(timeline.makespan_ms)}",
            f"lower bound {milliseconds(timeline.lower_bound_ms)}",
            f"bubble {timeline.bubble_ratio:.1%}",
        ]
        solver = summary(timeline).get("solver")
        if solver is not None:
            facts.append(f"{solver['status']}, gap {solver['gap']:.1%}")
        return SchedulePicture(
            title=f"{schedule.name}: {size}",
            subtitle=" · ".join([*facts, self.subject] if self.subject else facts),
            rows=timeline.operations(),
            curves=self.held(),
            amount="in flight" if self.memory is None else "GB/GPU",
            cap=None if self.evaluation is None else self.evaluation.cap_gb,
        )


AnyRun = ScheduleRun | ImpossibleRun


def run_plain(pipeline: EqualStages, schedule: Schedule, vpp: int | None = None) -> ScheduleRun:
    """A schedule on equal stages. Raises ScheduleError when it is impossible."""
    return ScheduleRun(pipeline.run(schedule, vpp or usual_vpp(schedule)))


def compare_plain(
    pipeline: EqualStages, schedules: Sequence[Schedule], vpp: int | None = None
) -> list[AnyRun]:
    """All of them on equal stages, each with its own VPP; `vpp` is that of `interleaved`."""
    runs: list[AnyRun] = []
    for each in schedules:
        chunks = usual_vpp(each, vpp or 2)
        try:
            runs.append(ScheduleRun(pipeline.run(each, chunks)))
        except ScheduleError as error:
            runs.append(ImpossibleRun(each, chunks, str(error)))
    return runs


class WorkloadSchedules:
    """Schedules of one workload on one cluster, timed and sized by the oracle."""

    def __init__(self, inputs: Inputs, asked: TrialConfig) -> None:
        """Raises EnvironmentMissing when a GEMM backend asked for by name is not installed."""
        self._inputs, self._asked = inputs, asked
        self._oracle: Oracle = inputs.oracle()

    def run(self, schedule: Schedule | None = None, vpp: int | None = None) -> AnyRun:
        """The trial with this schedule, its own when None, as a user's file would state it."""
        changes: dict[str, Any] = {}
        if schedule is not None:
            changes = {"pp_schedule": schedule, "vpp": vpp or self._vpp(schedule)}
        elif vpp is not None:
            changes = {"vpp": vpp}
        return self._run(self._trial(changes), proposal=False)

    def compare(self, schedules: Sequence[Schedule], vpp: int | None = None) -> list[AnyRun]:
        """The trial with each of them, as a user's file would state it.

        But for its own schedule, one that the framework refuses is not run: what is a warning for a
        file somebody has run is the reason here.
        `vpp` is that of `interleaved`, by default the trial's own or 2.
        """
        own = self._trial({}).pp_schedule
        runs: list[AnyRun] = []
        for each in schedules:
            chunks = vpp if vpp and each == "interleaved" else self._vpp(each)
            trial = self._trial({"pp_schedule": each, "vpp": chunks})
            if trial.pp_schedule != each:
                reason = "without a pipeline every schedule is 1f1b"
                runs.append(ImpossibleRun(each, chunks, reason))
                continue
            runs.append(self._run(trial, proposal=each != own))
        return runs

    def _vpp(self, schedule: Schedule) -> int:
        own = self._trial({}).vpp
        return usual_vpp(schedule, own if own > 1 else 2)

    def _trial(self, changes: dict[str, Any]) -> NormalTrial:
        return normalise(self._asked.model_copy(update=changes), self._inputs.workload)

    def _run(self, trial: NormalTrial, *, proposal: bool) -> AnyRun:
        inputs = self._inputs
        given = (trial, inputs.workload, inputs.cluster, inputs.search)
        verdict = check(*given, proposal=False)
        violations = verdict.violations
        if proposal:
            strict = check(*given, proposal=True).violations
            violations += tuple(v for v in strict if v.reason in verdict.warnings)
        if violations:
            reasons = "; ".join(violation.reason for violation in violations)
            return ImpossibleRun(trial.pp_schedule, trial.vpp, reasons)
        evaluation = self._oracle.project(trial)
        if not evaluation.legal:
            return ImpossibleRun(trial.pp_schedule, trial.vpp, str(evaluation.reason))
        return ScheduleRun(
            timeline=self._oracle.timeline(trial),
            subject=f"{inputs.workload.name} on {inputs.cluster.name}",
            memory=self._oracle.live_memory(trial),
            evaluation=evaluation,
            warnings=(*inputs.warnings, *verdict.warnings, *evaluation.warnings),
        )
