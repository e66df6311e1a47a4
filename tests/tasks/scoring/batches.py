"""Batches to score anywhere: dense and MoE, legal and illegal."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice

from projection.legality import LegalSpace, normalise
from schemas.evaluation import Evaluation
from schemas.search import SearchSpec
from schemas.trial import NormalTrial, TrialConfig
from schemas.workload import Workload
from storage.canonical import canonical
from tasks.evaluators import Evaluator
from tasks.inputs import Inputs
from tasks.scoring.question import Question, question_about
from tests.builders import cluster, small_dense, small_moe

LEGAL = 160
NODES = 4


def inputs_of(workload: Workload) -> Inputs:
    return Inputs(workload, cluster(), SearchSpec(gemm_backend="tile"))


DENSE, MOE = inputs_of(small_dense()), inputs_of(small_moe())


def batch_of(inputs: Inputs) -> list[NormalTrial]:
    """Legal trials from all over the space, and among them such as no oracle can answer for."""
    space = LegalSpace(inputs.workload, inputs.cluster, inputs.search)
    legal = list(islice(space, 0, 7 * LEGAL, 7))
    illegal = [normalise(TrialConfig(tp=3, mbs=mbs), inputs.workload) for mbs in (1, 2, 4, 8)]
    return [*legal[:50], *illegal, *legal[50:]]


def asking(make: Callable[..., Evaluator], *arguments: object) -> Question:
    """A question to an evaluator of a test's own."""
    return question_about(partial(make, *arguments))


def written(answers: Iterable[tuple[int, Evaluation]]) -> list[tuple[int, str]]:
    """Answers in the form in which a log keeps them, in the order of their trials."""
    return sorted((index, canonical(said.model_dump(mode="json"))) for index, said in answers)


def written_here(inputs: Inputs, trials: Sequence[NormalTrial]) -> list[tuple[int, str]]:
    evaluator = inputs.evaluator()
    return written((index, evaluator.score(trial)) for index, trial in enumerate(trials))
