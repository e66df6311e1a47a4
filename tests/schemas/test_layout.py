import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.layout import (
    MAX_SYMBOLS,
    LayoutError,
    Stage,
    check_layout,
    layout_text,
    parse_layout,
)


def counts(text: str) -> list[int]:
    return [stage.layers for stage in parse_layout(text)]


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("EtL", [1]),
        ("Et*3|t*4|t*3,L", [3, 4, 3]),
        ("Ettt|tt|tL", [3, 2, 1]),
        ("Ettt|(tt|)*29,m|L", [3, *[2] * 29, 0, 0]),
        ("E|(t*3|)*2,tL", [0, 3, 3, 1]),
        ("E,t,t|L", [2, 0]),
        ("Et||tL", [1, 0, 1]),
        ("E|*3tL", [0, 0, 0, 1]),
        ("Et*0|t*2,L", [0, 2]),
    ],
)
def test_megatrons_notation(text: str, layers: list[int]) -> None:
    assert counts(text) == layers


def test_ends_and_prediction_layers_are_where_they_stand() -> None:
    assert parse_layout("Et|t,m|L") == (
        Stage(1, 0, embedding=True, loss=False),
        Stage(1, 1, embedding=False, loss=False),
        Stage(0, 0, embedding=False, loss=True),
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ttt",
        "Et",
        "tL",
        "tEL",
        "EEtL",
        "EtLL",
        "EmtL",
        "Ext",
        "Et*L",
        "Et*-1L",
        "Et**2L",
        "*3EtL",
        "E(t*2L",
        "Et)*2L",
        "E((t)*2)*2L",
        "Et*99999999999999999999L",
        "Et*999999L",
        "E(t*9999)*9999L",
        "E()*3tL",
        "e|t|l",
        "Et٣L",
    ],
)
def test_everything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(LayoutError) as caught:
        parse_layout(text)
    assert "\n" not in str(caught.value)


def test_lists_of_lists_are_the_same_layout() -> None:
    rows = [["embedding", "decoder"], ["decoder", "MTP"], ["loss"]]
    assert layout_text(rows) == "Et|tm|L"
    assert layout_text(" Et | t,L ") == "Et|t,L"
    assert layout_text(None) is None
    for wrong in ([["decodr"]], ["t"], 3, {"a": 1}):
        with pytest.raises(LayoutError):
            layout_text(wrong)


def test_stages_and_layers_must_add_up() -> None:
    stages = parse_layout("Et*1|t*1|" + "t*2|" * 29 + "t*1,L")
    assert check_layout(stages, 61, 0, pp=16, vpp=None) == 2
    assert check_layout(stages, 61, 1, pp=16, vpp=2) == 2
    with pytest.raises(LayoutError, match="has 61 decoder layers, num_layers is 60"):
        check_layout(stages, 60, 0, pp=16, vpp=None)
    with pytest.raises(LayoutError, match="has 32 stages, pp·vpp is 64"):
        check_layout(stages, 61, 0, pp=16, vpp=4)
    with pytest.raises(LayoutError, match="has 32 stages, which pp = 5 does not divide"):
        check_layout(stages, 61, 0, pp=5, vpp=None)
    with pytest.raises(LayoutError, match="has 1 prediction layers, mtp_num_layers is 2"):
        check_layout(parse_layout("Et|m|L"), 1, 2, pp=1, vpp=None)


@given(st.lists(st.integers(0, 6), min_size=1, max_size=12), st.booleans())
def test_what_is_written_is_what_is_read(layers: list[int], starred: bool) -> None:
    stages = [f"t*{count}" if starred else "t" * count for count in layers]
    text = "E" + "|".join(stages) + ",L"
    assert counts(text) == layers
    assert check_layout(parse_layout(text), sum(layers), 0, pp=len(layers), vpp=1) == 1


@given(st.text(alphabet="EtmL|*(), 0123456789", max_size=40) | st.text(max_size=30))
def test_any_text_is_a_bounded_layout_or_refused(text: str) -> None:
    stages, problem = parse_layout("EtL"), ""
    try:
        stages = parse_layout(text)
    except LayoutError as refused:
        problem = str(refused)
    assert "\n" not in problem
    assert sum(stage.embedding for stage in stages) == sum(stage.loss for stage in stages) == 1
    assert sum(stage.layers for stage in stages) <= MAX_SYMBOLS
