"""Scores what survived the filter, yielding each answer as soon as there is one."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from schemas.errors import UserError
from schemas.evaluation import Evaluation
from schemas.trial import NormalTrial
from tasks.evaluators import Evaluator
from tasks.memory_filter import ORACLE_REFUSED, Rejection, Survivor

Known = Callable[[NormalTrial], Evaluation | None]
"""What has been evaluated before under the same signature and mode, by this run or another."""

Answer = Evaluation | UserError
"""An evaluation, or why the oracle will not give one (a schedule that cannot be built)."""

ScoreMany = Callable[[Sequence[NormalTrial]], Iterator[tuple[int, Answer]]]
"""Scores a batch, yielding (index, answer) in whatever order they finish."""


@dataclass(frozen=True, slots=True)
class Scored:
    """One trial's evaluation, and whether it was asked before."""

    survivor: Survivor
    answer: Evaluation
    """As the evaluator gave it: what a cache may keep."""
    from_cache: bool

    @property
    def evaluation(self) -> Evaluation:
        """The answer, with the legality rules' warnings first."""
        rules = tuple(w for w in self.survivor.warnings if w not in self.answer.warnings)
        return self.answer.model_copy(update={"warnings": rules + self.answer.warnings})


def score(
    survivors: Sequence[Survivor], known: Known, score_many: ScoreMany
) -> Iterator[Scored | Rejection]:
    """An answer per survivor: known ones first, then the others as they are computed."""
    unknown: list[Survivor] = []
    for survivor in survivors:
        evaluation = known(survivor.trial.trial)
        if evaluation is None:
            unknown.append(survivor)
        else:
            yield Scored(survivor, evaluation, from_cache=True)
    for index, answer in score_many([survivor.trial.trial for survivor in unknown]):
        survivor = unknown[index]
        if isinstance(answer, Evaluation):
            yield Scored(survivor, answer, from_cache=False)
        else:
            trial = survivor.trial
            yield Rejection(trial.number, trial.trial_id, ORACLE_REFUSED, str(answer))


def one_by_one(evaluator: Evaluator) -> ScoreMany:
    """Scores in this process, in order."""

    def score_many(trials: Sequence[NormalTrial]) -> Iterator[tuple[int, Answer]]:
        for index, trial in enumerate(trials):
            yield index, score_one(evaluator, trial)

    return score_many


def score_one(evaluator: Evaluator, trial: NormalTrial) -> Answer:
    """The evaluator's answer, or its refusal as a value."""
    try:
        return evaluator.score(trial)
    except UserError as refusal:
        return refusal
