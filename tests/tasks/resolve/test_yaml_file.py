import math
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UserError, WorkloadError
from tasks.resolve.yaml_file import MAX_BYTES, MAX_DEPTH, parse_yaml, read_yaml


def parse(text: str) -> dict[str, Any]:
    return parse_yaml(text.encode(), "f.yaml", WorkloadError).document


def refusal(text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(WorkloadError) as caught:
        parse_yaml(data, "f.yaml", WorkloadError)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_duplicate_key_is_refused_with_both_lines() -> None:
    message = refusal("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n")
    assert message == "f.yaml:5: the key 'c' is set twice (first on line 3)"


def test_a_syntax_error_names_its_line() -> None:
    assert refusal("a: 1\nb: [1, 2\nc: 3\n").startswith("f.yaml:3: not YAML:")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "the file is empty"),
        ("# only a comment\n", "the file is empty"),
        ("null\n", "the file is empty"),
        ("- a\n- b\n", "expected a mapping of keys to values at the top, found a list"),
        ("just text\n", "expected a mapping of keys to values at the top"),
        ("a: 1\n---\nb: 2\n", "a second YAML document starts here"),
        ("on: 1\n", "YAML reads the key 'on' as True, not as text"),
        ("1: a\n", "YAML reads the key '1' as 1, not as text"),
        ("{[1]: a}\n", "a key must be text"),
        ("a: .inf\n", "'.inf' is not a value a setting can have"),
        ("a: .nan\n", "is not a value a setting can have"),
        ("a: !!binary aGk=\n", "is not a value a setting can have"),
        ("a: !!python/object/apply:os.system [ls]\n", "the tag"),
        ("a: !!set {b}\n", "the tag tag:yaml.org,2002:set is not allowed"),
        ("a: *b\n", "the alias *b has no anchor above it"),
        ("a: &x [1, *x]\n", "the alias *x is inside its own anchor"),
        ("<<: [1]\n", "the merge key << takes a mapping"),
        ("a: !!int nine\n", "'nine' is not a valid value"),
    ],
)
def test_what_is_no_configuration_is_one_line(text: str, says: str) -> None:
    assert says in refusal(text)


def test_bytes_that_are_not_text_are_refused() -> None:
    assert "not UTF-8 text (byte 3)" in refusal(b"a: \xff\xfe")


def test_an_alias_bomb_is_refused_before_it_expands() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 20)]
    assert "values, aliases expanded" in refusal("\n".join(lines))


@pytest.mark.parametrize("opening", ["[", "{a: "])
def test_deep_nesting_is_refused(opening: str) -> None:
    assert "nest" in refusal("a: " + opening * 100_000)
    levels = MAX_DEPTH + 2
    closing = "]" if opening == "[" else "}"
    text = f"a: {opening * levels}1{closing * levels}"
    assert f"nested more than {MAX_DEPTH} levels deep" in refusal(text)


def test_a_file_larger_than_any_configuration_is_refused(tmp_path) -> None:
    path = tmp_path / "big.yaml"
    path.write_bytes(b"a: 1\n" + b"#" * MAX_BYTES)
    with pytest.raises(WorkloadError, match="larger than 1024 KiB"):
        read_yaml(path, "big.yaml", WorkloadError)


def test_a_missing_file_and_a_folder_are_said_apart(tmp_path) -> None:
    with pytest.raises(WorkloadError, match=r"^x: no such file$"):
        read_yaml(tmp_path / "x", "x", WorkloadError)
    with pytest.raises(WorkloadError, match=r"^d: is a directory$"):
        read_yaml(tmp_path, "d", WorkloadError)


def test_merge_keys_lie_below_the_mappings_own_keys() -> None:
    text = "base: &b {x: 1, y: 2}\nmore: &m {y: 3, z: 4}\nown: {<<: [*b, *m], x: 9}\n"
    assert parse(text)["own"] == {"x": 9, "y": 2, "z": 4}


def test_dates_stay_text_and_quoted_keys_are_text() -> None:
    assert parse("a: 2024-01-02\n'on': 1\n") == {"a": "2024-01-02", "on": 1}


def test_a_line_is_found_for_a_key_inside_an_alias() -> None:
    file = parse_yaml(b"a: &x\n  b: 1\nc: *x\n", "f.yaml", WorkloadError)
    assert file.line_of(("a", "b")) == 2
    assert file.line_of(("c", "b")) == 3
    assert file.line_of(("nowhere",)) is None


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
)
DOCUMENTS = st.dictionaries(
    st.text(max_size=10),
    st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=20,
    ),
    min_size=1,
    max_size=6,
)


@given(DOCUMENTS)
def test_reads_what_the_stock_loader_reads(document: dict[str, Any]) -> None:
    text = yaml.safe_dump(document, allow_unicode=True)
    assert parse(text) == yaml.safe_load(text)


@given(st.text(alphabet="ab:-[]{}&*!|>#'\"\n ,<", max_size=60) | st.text(max_size=60))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    document: dict[str, Any] = {}
    problem = ""
    try:
        document = parse(text)
    except WorkloadError as refused:
        problem = str(refused)
    assert "\n" not in problem
    assert all(isinstance(key, str) for key in document)


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        file = parse_yaml(data, "f.yaml", WorkloadError)
    except WorkloadError:
        return
    assert not any(isinstance(v, float) and math.isnan(v) for v in file.document.values())


def test_a_pipe_is_no_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match=r"^p: not a regular file$"):
        read_yaml(tmp_path / "pipe", "p", UserError)


def test_links_in_a_circle_are_said_to_be_links(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(UserError, match=r"^a: cannot be read: Too many levels of symbolic links$"):
        read_yaml(tmp_path / "a", "a", UserError)


def test_a_name_no_file_can_have_is_refused_in_a_short_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^x{200}: cannot be read: File name too long$"):
        read_yaml(tmp_path / ("x" * 300), "x" * 300, UserError)
