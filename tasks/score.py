"""Scores what survived the filter, yielding each answer as soon as there is one."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from schemas.evaluation import Evaluation
from schemas.trial import NormalTrial
from tasks.evaluators import Evaluator
from tasks.memory_filter import Rejection, Survivor, impossible

Known = Callable[[NormalTrial], Evaluation | None]
"""What has been evaluated before under the same signature and mode, by this run or another."""

ScoreMany = Callable[[Sequence[NormalTrial]], Iterator[tuple[int, Evaluation]]]
"""Scores a batch, yielding (index, evaluation) in whatever order they finish."""


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
        if answer.legal:
            yield Scored(survivor, answer, from_cache=False)
        else:
            yield impossible(survivor.trial, answer)


def one_by_one(evaluator: Evaluator) -> ScoreMany:
    """Scores in this process, in order."""

    def score_many(trials: Sequence[NormalTrial]) -> Iterator[tuple[int, Evaluation]]:
        for index, trial in enumerate(trials):
            yield index, evaluator.score(trial)

    return score_many
