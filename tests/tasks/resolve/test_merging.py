import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tasks.resolve.merging import Document, Origin, deep_merge

LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.lists(st.integers())
MAPPINGS = st.recursive(
    st.dictionaries(st.sampled_from("abc"), LEAVES, max_size=3),
    lambda inner: st.dictionaries(st.sampled_from("abc"), LEAVES | inner, max_size=3),
    max_leaves=12,
)
SHAPED = st.fixed_dictionaries(
    {}, optional={"a": LEAVES, "b": LEAVES, "n": st.dictionaries(st.sampled_from("xy"), LEAVES)}
)


@given(MAPPINGS)
def test_nothing_over_something_and_something_over_nothing_change_nothing(
    one: dict[str, Any],
) -> None:
    assert deep_merge(one, {}) == one
    assert deep_merge({}, one) == one


@given(MAPPINGS)
def test_merging_a_mapping_over_itself_changes_nothing(one: dict[str, Any]) -> None:
    assert deep_merge(one, one) == one


@given(MAPPINGS, MAPPINGS)
def test_inputs_are_left_alone_and_no_key_is_lost(
    base: dict[str, Any], over: dict[str, Any]
) -> None:
    before = copy.deepcopy((base, over))
    merged = deep_merge(base, over)
    assert (base, over) == before
    assert merged.keys() == base.keys() | over.keys()


@given(MAPPINGS, MAPPINGS)
def test_every_value_that_is_no_mapping_wins_from_above(
    base: dict[str, Any], over: dict[str, Any]
) -> None:
    merged = deep_merge(base, over)
    for key, value in over.items():
        if not isinstance(value, dict) or not isinstance(base.get(key), dict):
            assert merged[key] == value
    assert deep_merge(merged, over) == merged


@given(SHAPED, SHAPED, SHAPED)
def test_layers_of_one_shape_can_be_merged_in_any_grouping(
    a: dict[str, Any], b: dict[str, Any], c: dict[str, Any]
) -> None:
    assert deep_merge(deep_merge(a, b), c) == deep_merge(a, deep_merge(b, c))


def test_the_origin_of_a_key_is_the_layer_that_won() -> None:
    low = Document({"a": 1, "b": 2}, {("a",): Origin("low", "a"), ("b",): Origin("low", "b", 2)})
    high = Document({"a": 3}, {("a",): Origin("high", "a", 7)})
    merged = high.over(low)
    assert merged.values == {"a": 3, "b": 2}
    assert str(merged.origins["a",]) == "high:7: a"
    assert str(merged.origins["b",]) == "low:2: b"
    assert merged.without("a").origins == {("b",): Origin("low", "b", 2)}


def test_a_part_of_a_document_keeps_its_origins() -> None:
    origins = {("m",): Origin("f", "m"), ("m", "x"): Origin("f", "m.x", 2)}
    part = Document({"m": {"x": 1}}, origins).below("m")
    assert part.values == {"x": 1}
    assert part.origins == {("x",): Origin("f", "m.x", 2)}
    assert Document({"m": 1}).below("m") == Document()
