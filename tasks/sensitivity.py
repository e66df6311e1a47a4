"""How sharp a configuration stands: every axis moved by one step, all else kept if it can be.

A number moves to the legal values next to it, a word to every other, a switch to its other side.
Where that is not legal alone, what must change goes with it (expert tensor parallelism with tensor
parallelism, the schedule with the chunks, …), by as little as there is.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from projection.legality import as_request, check, derive_axes, neighbours, normalise
from schemas.errors import UserError
from schemas.evaluation import Evaluation
from schemas.legality import Axis, AxisValue, LegalAxes
from schemas.trial import NormalTrial
from storage.exports.knobs import knobs_apart
from tasks.inputs import Inputs

CLOSE = 0.02
"""A step that loses at most this much of the throughput is on the same plain."""
FARTHEST = 3
"""Steps that may have to go with one; beyond that it is another configuration altogether."""
MOST_OFFERS = 32
"""Legal configurations with the step's value that are looked at, the nearest first."""


@dataclass(frozen=True, slots=True)
class Step:
    """One axis moved, and what became of it."""

    axis: str
    value: AxisValue
    trial: NormalTrial | None
    """None: no legal configuration near the start has this value."""
    evaluation: Evaluation | None
    refused: str | None
    """Why there is no evaluation."""
    gain: float | None
    """Throughput over that of the start, less one; None where it does not run or does not fit."""


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """A configuration and all steps from it, in the order of the axes."""

    start: Evaluation
    trial: NormalTrial
    steps: tuple[Step, ...]
    held: tuple[str, ...]
    """Axes the search may not move."""

    @property
    def faster(self) -> tuple[Step, ...]:
        """Steps that fit and gain, the best first."""
        found = [step for step in self.steps if step.gain is not None and step.gain > 0]
        return tuple(sorted(found, key=lambda step: -(step.gain or 0.0)))

    @property
    def close(self) -> tuple[Step, ...]:
        """Steps that fit and neither gain nor lose more than `CLOSE`."""
        return tuple(
            step for step in self.steps if step.gain is not None and -CLOSE <= step.gain <= 0
        )


class _Landing(NamedTuple):
    """Where a step leads, or why nowhere."""

    trial: NormalTrial | None
    refused: str | None = None


def steps_from(inputs: Inputs, trial: NormalTrial) -> Sensitivity:
    """Every step from `trial`, judged and scored in the search's mode; some 20 to 40 evaluations.

    Raises:
        UserError: `trial` itself has no throughput to compare with.
    """
    axes = derive_axes(inputs.workload, inputs.cluster, inputs.search)
    evaluator = inputs.evaluator()
    start = evaluator.score(trial)
    if start.tokens_per_s_per_gpu is None:
        raise UserError(f"there is nothing to step from: {start.reason or 'it has no throughput'}")
    seen, steps = {trial.trial_id}, list[Step]()
    for axis, value in _moves(axes, trial):
        moved, refused = _moved(trial, axis, value, inputs)
        if moved is None:
            steps.append(Step(axis, value, None, None, refused, None))
        elif moved.trial_id not in seen:  # else the same configuration by another name
            seen.add(moved.trial_id)
            found = evaluator.score(moved)
            steps.append(Step(axis, value, moved, found, None, _gain(start, found)))
    held = tuple(axis.name for axis in axes.axes if axis.pinned)
    return Sensitivity(start, trial, tuple(steps), held)


def _moves(axes: LegalAxes, trial: NormalTrial) -> Iterator[tuple[str, AxisValue]]:
    """(axis, value) of every step."""
    for axis in axes.axes:
        now = getattr(trial, axis.name)
        if axis.pinned:
            continue
        if axis.name == "recompute_method" and trial.recompute_granularity != "full":
            continue
        yield from ((axis.name, value) for value in _beside(axis, now))


def _beside(axis: Axis, now: AxisValue | None) -> list[AxisValue]:
    """The values one step from `now`: both neighbours of a number, every other word or switch."""
    values = [value for value in axis.values if value != now or type(value) is not type(now)]
    if not all(type(value) is int for value in values) or type(now) is not int:
        return values
    below = [value for value in values if int(value) < now]
    above = [value for value in values if int(value) > now]
    return [*below[-1:], *above[:1]]


def _moved(trial: NormalTrial, axis: str, value: AxisValue, inputs: Inputs) -> _Landing:
    """The configuration after the step, with what must go with it."""
    changes: dict[str, AxisValue] = {axis: value}
    if axis == "recompute_granularity" and value == "full":
        changes |= {"recompute_method": "block", "recompute_num_layers": 1}
    elif axis == "recompute_num_layers" and value and trial.recompute_granularity != "full":
        changes |= {"recompute_granularity": "full", "recompute_method": "block"}
    asked = as_request(trial).model_copy(update=changes)
    moved = normalise(asked, inputs.workload)
    workload, cluster, search = inputs.workload, inputs.cluster, inputs.search
    verdict = check(asked, workload, cluster, search)
    if verdict.legal and getattr(moved, axis) == value:
        return _Landing(moved)
    held = search.model_copy(update={"pinned": {**search.pinned, axis: value}})
    offers = [
        (offer.distance, len(knobs_apart(trial, near)), place, near)
        for place, offer in enumerate(neighbours(asked, workload, cluster, held, MOST_OFFERS))
        # What only the pin makes legal is no place to step to.
        if offer.distance <= FARTHEST and check(offer.config, workload, cluster, search).legal
        for near in [normalise(offer.config, workload)]
    ]
    if offers:  # of equally near ones, what is most like the start, and not the workload
        return _Landing(min(offers, key=lambda offer: offer[:3])[-1])
    reasons = "; ".join(violation.reason for violation in verdict.violations)
    return _Landing(None, reasons or f"{axis} {value} means what it was")


def _gain(start: Evaluation, found: Evaluation) -> float | None:
    before, after = start.tokens_per_s_per_gpu, found.tokens_per_s_per_gpu
    if not found.fits or not before or after is None:
        return None
    return after / before - 1
