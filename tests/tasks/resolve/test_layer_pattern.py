import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.resolve.layer_pattern import MAX_LAYERS, PatternError, moe_layers, parse_pattern


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("[]", []),
        ("[1]", [1]),
        ("[0,1]", [0, 1]),
        ("([0]*3+[1]*58)", [0] * 3 + [1] * 58),
        ("[0]*1+[1]*26", [0] + [1] * 26),
        ("([1]*3+[0])*2+[1]", [1, 1, 1, 0, 1, 1, 1, 0, 1]),
        ("3*[0]+[1]", [0, 0, 0, 1]),
        ("[0,1]*2*2", [0, 1] * 4),
        ("(((([1]))))", [1]),
        (" ( [ 0 ] * 2 ) ", [0, 0]),
        ("[1]*0", []),
    ],
)
def test_sums_of_repeated_lists(text: str, pattern: list[int]) -> None:
    assert parse_pattern(text) == pattern


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[",
        "[2]",
        "[1,]",
        "[1 1]",
        "[1]*",
        "[1]+",
        "*3",
        "3",
        "([1]",
        "[1])",
        "[1]**2",
        "[1]-[0]",
        "[-1]",
        "__import__('os').system('true')",
        "[x for x in range(9)]",
        "[1]*9999999",
        "[1]*999999",
        "([1]*9999)*9999",
        "[1]*9999+[1]*9999",
        "(" * 1000 + "[1]" + ")" * 1000,
        "[1]" + "*1" * 200_000,
    ],
)
def test_everything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(PatternError) as caught:
        parse_pattern(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


def test_a_number_marks_every_nth_layer_from_the_first() -> None:
    assert moe_layers(2, 5) == (True, False, True, False, True)
    assert moe_layers(1, 3) == moe_layers("1", 3) == (True, True, True)


@pytest.mark.parametrize("freq", [0, -1, True, 1.5, [0, 2], [True], {"a": 1}, ["1"]])
def test_what_is_no_pattern_is_refused(freq: object) -> None:
    with pytest.raises(PatternError):
        moe_layers(freq, 2)


def test_a_pattern_of_another_length_says_both() -> None:
    with pytest.raises(PatternError, match="describes 61 layers, num_layers is 4"):
        moe_layers("([0]*3+[1]*58)", 4)


BITS = st.lists(st.sampled_from([0, 1]), max_size=8)


@given(st.lists(st.tuples(BITS, st.integers(0, 9)), min_size=1, max_size=6), st.integers(0, 5))
def test_what_is_written_is_what_is_read(parts: list[tuple[list[int], int]], times: int) -> None:
    text = "+".join(f"[{','.join(map(str, bits))}]*{count}" for bits, count in parts)
    plain = [bit for bits, count in parts for bit in bits * count]
    assert parse_pattern(text) == plain
    assert parse_pattern(f"({text})*{times}") == plain * times
    layers = len(plain)
    assert moe_layers(text, layers) == moe_layers(plain, layers) == tuple(b == 1 for b in plain)


@given(st.text(alphabet="[]()+*,01 29", max_size=60) | st.text(max_size=40))
def test_any_text_is_a_bounded_pattern_or_refused(text: str) -> None:
    pattern, problem = [0], ""
    try:
        pattern = parse_pattern(text)
    except PatternError as refused:
        problem = str(refused)
    assert "\n" not in problem
    assert len(pattern) <= MAX_LAYERS
    assert set(pattern) <= {0, 1}
