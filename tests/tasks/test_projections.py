"""Projections without a search: one answer per question, in order, whatever is wrong with some."""

import json
from pathlib import Path
from typing import Any

import pytest

from schemas.errors import UserError
from schemas.evaluation import Evaluation
from schemas.trial import TrialConfig
from storage.evaluation_cache import identity_of
from tasks.projections import Projector, answer_lines
from tests.end_to_end.files import write_inputs


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_inputs(tmp_path_factory.mktemp("inputs"))


def answers(files: tuple[Path, Path], *lines: str) -> list[tuple[bool, dict[str, Any]]]:
    defaults = {"workload": str(files[0]), "cluster": str(files[1])}
    found = answer_lines(Projector(gemm_backend="tile"), lines, defaults)
    return [(answer.failed, json.loads(answer.text)) for answer in found]


def test_answers_come_in_the_order_of_the_questions(files: tuple[Path, Path]):
    questions = [{"set": {"mbs": mbs}} for mbs in (4, 1, 2)]
    found = answers(files, *map(json.dumps, questions))
    assert [answer["config"]["mbs"] for _, answer in found] == [4, 1, 2]
    assert [failed for failed, _ in found] == [False, False, False]


def test_a_batch_answers_what_a_single_question_answers(files: tuple[Path, Path]):
    alone = Projector(gemm_backend="tile").project(*files, TrialConfig(pp=2, mbs=1))
    ((_, answer),) = answers(files, '{"set": {"pp": 2, "mbs": 1}}')
    assert Evaluation.model_validate(answer) == alone
    assert answer["legal"]
    assert sum(answer["time_breakdown_ms"].values()) == pytest.approx(answer["iteration_ms"])


def test_an_illegal_question_is_answered_with_reasons_and_no_numbers(files: tuple[Path, Path]):
    ((failed, answer),) = answers(files, '{"set": {"pp": 3}}')
    assert not failed
    assert answer["legal"] is False
    assert answer["reason_code"] == "world_not_tiled"
    assert answer["tokens_per_s_per_gpu"] is None
    assert answer["memory_per_gpu_gb"] is None
    assert (answer["source"], answer["provenance"]) == ("simulate", "inferred")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("not json", "not JSON"),
        ("[1, 2]", "not a JSON object"),
        ('{"workload": "nowhere.yaml"}', "nowhere.yaml: no such file"),
        ('{"workload": 3}', "'workload' must be the path of a file"),
        ('{"set": {"ppp": 3}}', "did you mean pp?"),
        ('{"set": {"pp": "three"}}', "pp=three"),
        ('{"set": [1]}', "'set' must be an object"),
        ('{"sett": {}}', "unknown key 'sett'"),
    ],
)
def test_a_line_that_cannot_be_answered_says_so_with_its_number(
    files: tuple[Path, Path], line: str, says: str
):
    good, bad, after = answers(files, "{}", line, '{"set": {"mbs": 1}}')
    assert good[1]["legal"]
    assert after[1]["config"]["mbs"] == 1
    failed, answer = bad
    assert failed
    assert answer["line"] == 2
    assert says in answer["error"]


def test_a_batch_counted_in_microbatches_is_projected_so(files: tuple[Path, Path]):
    ((_, answer),) = answers(files, '{"set": {"num_microbatches": 4, "mbs": 1}}')
    assert answer["num_microbatches"] == 4
    assert answer["config"]["gbs"] == 4 * answer["derived_dp"]


def test_blank_lines_are_no_questions(files: tuple[Path, Path]):
    assert len(answers(files, "", "{}", "   ")) == 1


def test_a_file_may_say_what_a_proposal_may_not(files: tuple[Path, Path]):
    """More recomputed layers than a stage has: measured files say it and mean all."""
    asked = TrialConfig(recompute_granularity="full", recompute_num_layers=40)
    answer = Projector(gemm_backend="tile").project(*files, asked)
    assert answer.legal
    assert any("all of them are recomputed" in warning for warning in answer.warnings)


def test_the_papers_memory_regime_is_another_question(files: tuple[Path, Path]):
    config = Projector(gemm_backend="tile").project(*files, TrialConfig())
    paper = Projector(gemm_backend="tile", memory_regime="paper").project(*files, TrialConfig())
    assert paper.memory_regime == "paper"
    assert paper.memory_per_gpu_gb != config.memory_per_gpu_gb
    assert paper.signature == config.signature, "another question of the same job and machine"
    assert identity_of(paper) != identity_of(config)


def test_a_missing_file_is_the_users_error(files: tuple[Path, Path]):
    with pytest.raises(UserError, match=r"nowhere\.yaml"):
        Projector().project(files[0], Path("nowhere.yaml"), TrialConfig())
