"""Evaluations that were made before, by this run or another, under the same question."""

from collections.abc import Callable

from schemas.evaluation import Evaluation
from schemas.trial import NormalTrial
from storage.evaluation_cache import EvaluationCache
from tasks.inputs import Inputs
from tasks.score import Known
from tasks.step_keys import score_identity


def known_evaluations(cache: EvaluationCache, inputs: Inputs, odd: Callable[[str], None]) -> Known:
    """A lookup for the mode and signature of `inputs`; a damaged entry is a miss, told to `odd`."""

    def known(trial: NormalTrial) -> Evaluation | None:
        found = cache.find(score_identity(inputs, trial))
        if found.warning is not None:
            odd(found.warning)
        return found.evaluation

    return known
