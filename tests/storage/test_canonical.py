import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.errors import LogError
from storage.canonical import canonical, is_canonical, parsed

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)


@given(json_values)
def test_reading_back_gives_the_value_and_its_own_bytes(value: object) -> None:
    text = canonical(value) if _encodable(value) else "null"
    again = json.loads(text)
    assert canonical(again) == text
    if _encodable(value):
        assert again == value


def _encodable(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def test_the_order_of_keys_does_not_matter() -> None:
    assert canonical({"b": 1, "a": {"d": 2, "c": 3}}) == canonical({"a": {"c": 3, "d": 2}, "b": 1})


def by_json(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


floats = st.floats(allow_nan=False, allow_infinity=False)
small = st.builds(lambda x, power: x * 10.0**power, st.floats(-10, 10), st.integers(-12, 2))


@settings(max_examples=500)
@given(floats | small, st.text("0.1e-:,[]"))
def test_floats_are_spelled_as_json_spells_them(number: float, lookalike: str) -> None:
    value = {lookalike: [number, {"a": -number}, lookalike], "top": number}
    assert canonical(value) == by_json(value)
    assert canonical(number) == repr(number)
    assert is_canonical(by_json(value), value)


@given(json_values)
def test_the_canonical_form_is_known_for_one(value: object) -> None:
    if _encodable(value):
        text = by_json(value)
        assert is_canonical(text, parsed(text))


@pytest.mark.parametrize(
    "text",
    [
        '{"b":1,"a":2}',
        '{"a":1,"a":1}',
        '{"a": 1}',
        '{"a":1} ',
        "[0.00001]",
        "[1e-7]",
        "[1e-007]",
        "[1E-07]",
        "[1e16]",
        "[1.50]",
        "[-0]",
        "[10000000000000000.0]",
        "[123456789012345678901.0]",
        '["\\u00e9"]',
        '["\\/"]',
        '["\\u001F"]',
    ],
)
def test_any_other_spelling_is_not_canonical(text: str) -> None:
    assert not is_canonical(text, parsed(text))


@pytest.mark.parametrize("text", ["[NaN]", "[Infinity]", "{", ""])
def test_what_is_not_json_is_not_parsed(text: str) -> None:
    with pytest.raises(ValueError):
        parsed(text)


def test_floats_have_one_form() -> None:
    assert canonical([0.1 + 0.2, 1e16, 1.0, 5e-324]) == "[0.30000000000000004,1e+16,1.0,5e-324]"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {1, 2}])
def test_what_has_no_json_form_is_refused(value: object) -> None:
    with pytest.raises(LogError, match="cannot be recorded"):
        canonical({"value": value})
