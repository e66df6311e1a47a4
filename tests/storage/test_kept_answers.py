"""Answers of steps: found whole by their own key, and a damaged one is no answer."""

from pathlib import Path
from typing import Any

import pytest

from storage import Store
from storage.kept_answers import KeptAnswers

KEY, OTHER = "ab" * 32, "cd" * 32
VALUE = {"axes": [1, 2.5, "x", None], "by": {"1": [True]}}


def answers_at(root: Path) -> KeptAnswers:
    return Store.at(root).answers


def entry(root: Path) -> Path:
    (path,) = (root / "answers").rglob("*.json")
    return path


def test_an_answer_is_found_by_step_and_key(tmp_path: Path) -> None:
    assert answers_at(tmp_path).find("derive_axes", KEY) == (None, None)
    assert answers_at(tmp_path).put("derive_axes", KEY, VALUE) is None
    assert answers_at(tmp_path).find("derive_axes", KEY) == (VALUE, None)
    assert answers_at(tmp_path).find("derive_axes", OTHER) == (None, None)
    assert answers_at(tmp_path).find("seed_batch", KEY) == (None, None)
    assert entry(tmp_path).relative_to(tmp_path).parts[:2] == ("answers", "derive_axes")


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b'{"value": 1}', b"\xff\xfe", b"null", None],
    ids=["empty", "torn", "foreign", "not text", "null", "edited"],
)
def test_a_damaged_answer_is_a_miss_said_so_and_overwritten(
    tmp_path: Path, damage: bytes | None
) -> None:
    kept = answers_at(tmp_path)
    kept.put("derive_axes", KEY, VALUE)
    path = entry(tmp_path)
    edited = path.read_bytes().replace(b"2.5", b"3.5")
    assert edited != path.read_bytes()
    path.write_bytes(edited if damage is None else damage)
    value, warning = kept.find("derive_axes", KEY)
    assert value is None
    assert warning is not None
    assert "is damaged" in warning
    mended = kept.put("derive_axes", KEY, VALUE)
    assert mended is not None
    assert "overwritten" in mended
    assert kept.find("derive_axes", KEY) == (VALUE, None)


def test_the_answer_to_another_question_is_none(tmp_path: Path) -> None:
    kept = answers_at(tmp_path)
    kept.put("derive_axes", KEY, VALUE)
    for step, key in (("derive_axes", OTHER), ("seed_batch", KEY)):
        path = tmp_path / "answers" / step / key[:2] / f"{key}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((tmp_path / "answers/derive_axes/ab" / f"{KEY}.json").read_bytes())
        value, warning = kept.find(step, key)
        assert value is None
        assert warning is not None


@pytest.mark.parametrize("second", [VALUE, {"axes": []}])
def test_the_first_answer_stands(tmp_path: Path, second: Any) -> None:
    kept = answers_at(tmp_path)
    kept.put("derive_axes", KEY, VALUE)
    warning = kept.put("derive_axes", KEY, second)
    assert (warning is None) == (second == VALUE)
    assert kept.find("derive_axes", KEY).value == VALUE
