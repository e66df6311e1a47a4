import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import LogError
from storage.canonical import canonical

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


def test_floats_have_one_form() -> None:
    assert canonical([0.1 + 0.2, 1e16, 1.0, 5e-324]) == "[0.30000000000000004,1e+16,1.0,5e-324]"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", {1, 2}])
def test_what_has_no_json_form_is_refused(value: object) -> None:
    with pytest.raises(LogError, match="cannot be recorded"):
        canonical({"value": value})
