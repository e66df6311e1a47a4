"""Scores stream, known ones are not asked again, and a pool answers as one process does."""

from schemas.evaluation import Evaluation
from schemas.trial import NormalTrial
from tasks.inputs import Inputs
from tasks.memory_filter import Rejection, Survivor
from tasks.score import Scored, one_by_one, score
from tests.tasks.seeds import mixtral_inputs, numbered


def survivors(inputs: Inputs, *mbs: int) -> list[Survivor]:
    trials = [numbered(n, inputs.workload, mbs=m) for n, m in enumerate(mbs)]
    return [Survivor(trial, ("a rule's warning",), fits=True) for trial in trials]


def nothing_known(_: NormalTrial) -> Evaluation | None:
    return None


def test_a_score_carries_the_rules_warnings_and_the_cache_keeps_the_oracles_answer():
    inputs = mixtral_inputs()
    evaluator = inputs.evaluator()
    (scored,) = score(survivors(inputs, 1), nothing_known, one_by_one(evaluator))
    assert isinstance(scored, Scored)
    assert not scored.from_cache
    assert scored.evaluation.warnings[0] == "a rule's warning"
    assert scored.answer == evaluator.score(scored.survivor.trial.trial)


def test_what_is_known_is_not_asked_again():
    inputs = mixtral_inputs()
    both = survivors(inputs, 1, 2)
    remembered = inputs.evaluator().score(both[0].trial.trial)

    def known(trial: NormalTrial) -> Evaluation | None:
        return remembered if trial == both[0].trial.trial else None

    asked: list[NormalTrial] = []

    def score_many(trials):  # type: ignore[no-untyped-def]
        asked.extend(trials)
        return one_by_one(inputs.evaluator())(trials)

    answers = list(score(both, known, score_many))
    assert [answer.from_cache for answer in answers if isinstance(answer, Scored)] == [True, False]
    assert asked == [both[1].trial.trial]


def test_an_answer_is_there_before_the_next_is_computed():
    inputs = mixtral_inputs()
    computed = []

    class Evaluator:
        def memory(self, trial: NormalTrial) -> Evaluation:
            raise AssertionError("scoring asks for scores")

        def score(self, trial: NormalTrial) -> Evaluation:
            computed.append(trial.mbs)
            return inputs.evaluator().score(trial)

    answers = score(survivors(inputs, 1, 2), nothing_known, one_by_one(Evaluator()))
    next(answers)
    assert computed == [1]


def test_what_the_oracle_finds_impossible_is_a_rejection():
    inputs = mixtral_inputs()
    impossible = Survivor(numbered(3, inputs.workload, tp=3), (), fits=True)
    (answer,) = score([impossible], nothing_known, one_by_one(inputs.evaluator()))
    assert isinstance(answer, Rejection)
    assert answer.number == 3
    assert answer.reason
