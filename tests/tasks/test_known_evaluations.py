"""One signature for every mode and memory regime, and yet no answer stands for another's."""

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from schemas.evaluation import Evaluation
from storage.evaluation_cache import EvaluationCache, identity_of
from storage.store import as_store
from tasks.inputs import Inputs, resolve_pair
from tasks.known_evaluations import known_evaluations
from tests.end_to_end.files import write_inputs

QUESTIONS: tuple[dict[str, Any], ...] = (
    {"mode": "dry"},
    {"mode": "memory-real"},
    {"mode": "full"},
    {"mode": "memory-real", "memory_regime": "paper"},
    {"mode": "full", "memory_regime": "paper"},
)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Inputs, Evaluation]]:
    files = write_inputs(tmp_path_factory.mktemp("inputs"))
    inputs = [resolve_pair(*files, env={}, gemm_backend="tile", **each) for each in QUESTIONS]
    return [(each, each.evaluator().score(each.workload.baseline)) for each in inputs]


def test_the_signature_is_that_of_the_job_and_the_machine(asked: list[tuple[Inputs, Evaluation]]):
    assert len({answer.signature for _, answer in asked}) == 1


def test_each_question_finds_its_own_answer_only(
    asked: list[tuple[Inputs, Evaluation]], tmp_path: Path
):
    for (one, first), (other, second) in combinations(asked, 2):
        assert identity_of(first) != identity_of(second)
        folder = f"{one.search.mode}-{other.search.mode}-{other.search.memory_regime}"
        cache = EvaluationCache(as_store(tmp_path / folder / one.search.memory_regime).backend)
        cache.put(first)
        assert known_evaluations(cache, one, pytest.fail)(one.workload.baseline) == first
        assert known_evaluations(cache, other, pytest.fail)(other.workload.baseline) is None
        assert cache.put(second) is None
