"""Cheapest sufficient answer first: legality, what is already known, then projected memory."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from schemas.evaluation import Evaluation
from schemas.legality import Verdict
from schemas.trial import NormalTrial
from tasks.dominance import at_least_as_much_memory
from tasks.evaluators import Evaluator
from tasks.seed_batch import NumberedTrial

DOES_NOT_FIT = "does_not_fit"
IMPLIED_OOM = "implied_oom"

Judge = Callable[[NumberedTrial], Verdict]
"""The legality rules for one trial; the baseline is judged as a file, the rest as proposals."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A candidate that is not worth a performance call, and the numbers that say so."""

    number: int
    trial_id: str
    code: str
    reason: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    inferred_from: int | None = None
    evaluation: Evaluation | None = None


@dataclass(frozen=True, slots=True)
class Survivor:
    """A candidate to score; `warnings` are the legality rules' own."""

    trial: NumberedTrial
    warnings: tuple[str, ...]
    fits: bool


def memory_filter(
    trials: Sequence[NumberedTrial],
    judge: Judge,
    evaluator: Evaluator,
    too_big: Mapping[int, NormalTrial],
) -> Iterator[Rejection | Survivor]:
    """One verdict per trial, in order, as each is reached.

    `too_big` holds the trials known not to fit, by number; this round's own are added to it. The
    baseline (trial 0) survives when it does not fit: it is what everything is compared with.
    """
    known = dict(too_big)
    for trial in trials:
        verdict = judge(trial)
        if not verdict.legal:
            yield _illegal(trial, verdict)
            continue
        if trial.number != 0 and (implied := _implied(trial, known)) is not None:
            yield implied
            continue
        memory = evaluator.memory(trial.trial)
        if not memory.legal:
            yield impossible(trial, memory)
            continue
        if not memory.fits:
            known[trial.number] = trial.trial
            if trial.number != 0:
                yield _does_not_fit(trial, memory)
                continue
        yield Survivor(trial, verdict.warnings, bool(memory.fits))


def _illegal(trial: NumberedTrial, verdict: Verdict) -> Rejection:
    first, *others = verdict.violations
    reason = first.reason + "".join(f"; {other.reason}" for other in others)
    return Rejection(trial.number, trial.trial_id, first.code, reason)


def impossible(trial: NumberedTrial, evaluation: Evaluation) -> Rejection:
    """What the rules let pass and the oracle finds physically impossible."""
    code, reason = evaluation.reason_code or "impossible", evaluation.reason or "impossible"
    return Rejection(trial.number, trial.trial_id, code, reason)


def _implied(trial: NumberedTrial, known: Mapping[int, NormalTrial]) -> Rejection | None:
    # In order of number, so that a resumed round names the same trial as an uninterrupted one.
    for number, bigger in sorted(known.items()):
        raised = at_least_as_much_memory(trial.trial, bigger)
        if raised is None:
            continue
        why = ", ".join(
            f"{knob} {getattr(bigger, knob)} → {getattr(trial.trial, knob)}" for knob in raised
        )
        return Rejection(
            trial.number,
            trial.trial_id,
            IMPLIED_OOM,
            f"trial {number} does not fit, and {why} can only raise memory",
            inferred_from=number,
        )
    return None


def _does_not_fit(trial: NumberedTrial, memory: Evaluation) -> Rejection:
    needed, cap = memory.memory_per_gpu_gb or 0.0, memory.cap_gb
    return Rejection(
        trial.number,
        trial.trial_id,
        DOES_NOT_FIT,
        f"needs {needed:.1f} GB per GPU, {needed - cap:.1f} GB more than the cap of {cap:.1f} GB",
        {"memory_per_gpu_gb": needed, "cap_gb": cap, "over_gb": needed - cap},
        evaluation=memory,
    )
