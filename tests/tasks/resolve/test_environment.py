import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import WorkloadError
from tasks.resolve.environment import retype, search_dotenv, substitute, substitute_text
from tasks.resolve.yaml_file import parse_yaml


def text(value: str, **env: str) -> Any:
    return substitute_text(value, env, "f.yaml:1: a.b", WorkloadError)


@pytest.mark.parametrize(
    ("written", "env", "value"),
    [
        ("${A}", {"A": "7"}, 7),
        ("${A:3}", {}, 3),
        ("${A:3}", {"A": "4"}, 4),
        ("${A:-3}", {}, -3),
        ("${A:1.0e-5}", {}, 1e-5),
        ("${A:8.0e-4}", {}, 8e-4),
        ("${A:true}", {}, True),
        ("${A:False}", {}, False),
        ("${A:null}", {}, None),
        ("${A:amd}", {}, "amd"),
        ("${A:}", {}, ""),
        ("${A:meta-llama/Llama-3.1-8B}", {}, "meta-llama/Llama-3.1-8B"),
        ("${A:deepseek_v3}.yaml", {}, "deepseek_v3.yaml"),
        ("${A:1}${B:2}", {}, 12),
        ("x-${A}-${B:2}", {"A": "y"}, "x-y-2"),
        ("${A:nan}", {}, "nan"),
        ("${A:inf}", {}, "inf"),
        ("007", {}, "007"),
        ("4", {}, "4"),
        ("cost: ${", {}, "cost: ${"),
        ("${}", {}, "${}"),
    ],
)
def test_references_are_replaced_and_what_changed_is_retyped(
    written: str, env: dict[str, str], value: Any
) -> None:
    got = text(written, **env)
    assert got == value
    assert type(got) is type(value)


def test_a_required_variable_that_is_not_set_names_the_place() -> None:
    with pytest.raises(WorkloadError) as caught:
        text("${NO_SUCH}")
    assert str(caught.value) == "f.yaml:1: a.b: the environment variable NO_SUCH is not set"
    assert "export NO_SUCH" in str(caught.value.hint)


def test_a_reference_inside_a_default_is_refused() -> None:
    with pytest.raises(WorkloadError, match="inside its default"):
        text("${A:${B:1}}")


def test_lists_and_nested_mappings_are_walked_and_places_named() -> None:
    file = parse_yaml(b"a:\n  b: [1, '${X:2}']\n  c: '${GONE}'\n", "f.yaml", WorkloadError)
    with pytest.raises(WorkloadError, match=r"^f\.yaml:3: a\.c: the environment variable GONE"):
        substitute(file, {}, WorkloadError)
    assert substitute(file, {"GONE": "x"}, WorkloadError) == {"a": {"b": [1, 2], "c": "x"}}


def test_the_original_document_is_left_alone() -> None:
    file = parse_yaml(b"a: '${X:2}'\n", "f.yaml", WorkloadError)
    substitute(file, {}, WorkloadError)
    assert file.document == {"a": "${X:2}"}


@given(st.text().filter(lambda value: "${" not in value))
def test_text_without_references_is_never_changed(value: str) -> None:
    assert text(value) == value


@given(st.integers(-(10**17), 10**17))
def test_integers_survive_the_environment(number: int) -> None:
    assert text("${A}", A=str(number)) == number


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_survive_the_environment(number: float) -> None:
    got = text("${A}", A=repr(number))
    assert got == number
    assert isinstance(got, float)


@given(st.text())
def test_retyping_never_fails(value: str) -> None:
    assert retype(value) is None or isinstance(retype(value), bool | int | float | str)


@given(st.text(max_size=40), st.dictionaries(st.text(max_size=3), st.text(max_size=5), max_size=3))
def test_any_text_is_resolved_or_refused_in_one_line(value: str, env: dict[str, str]) -> None:
    problem = "here"
    try:
        substitute_text(value, env, "here", WorkloadError)
    except WorkloadError as refused:
        problem = str(refused)
    assert problem.startswith("here")
    assert len(problem.splitlines()) == 1


def test_dotenv_files_lie_below_the_environment_and_the_nearest_wins(tmp_path: Path) -> None:
    home, root, cwd = tmp_path / "home", tmp_path / "repo", tmp_path / "repo" / "sub"
    for folder in (home, cwd):
        folder.mkdir(parents=True)
    (root / ".git").mkdir()
    (home / ".env").write_text("A=home\nB=home\nC=home\nD=home\n")
    (root / ".env").write_text("B=root\nC=root\nD=root\n")
    (cwd / ".env").write_text("C=cwd\nD=cwd\nNO_VALUE\n")
    found = search_dotenv({"HOME": str(home), "D": "environment"}, cwd)
    assert found == {"HOME": str(home), "A": "home", "B": "root", "C": "cwd", "D": "environment"}


def test_dotenv_files_are_not_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("REFOLD_TEST_SECRET=x\n")
    monkeypatch.delenv("REFOLD_TEST_SECRET", raising=False)
    assert search_dotenv({"HOME": "/nowhere"}, tmp_path)["REFOLD_TEST_SECRET"] == "x"
    assert "REFOLD_TEST_SECRET" not in os.environ
