import pytest
from hypothesis import given
from hypothesis import strategies as st

from projection.legality.split import (
    balanced_layout,
    largest_stage,
    layout_layers,
    split_problem,
)
from tests.builders import DEEPSEEK_LAYOUT


def test_a_shipped_layout_is_read() -> None:
    counts = layout_layers(DEEPSEEK_LAYOUT)
    assert (len(counts), sum(counts), counts[:3], counts[-1]) == (32, 61, (1, 1, 2), 1)


def test_repeated_groups_and_empty_stages_are_read() -> None:
    assert layout_layers("E|(tt|)*3t,m|L") == (0, 2, 2, 2, 1, 0)


@pytest.mark.parametrize("layout", ["Et*3|x,L", "Et*999999L", "E((t*9)*9)*999L"])
def test_a_layout_that_is_none_is_refused(layout: str) -> None:
    with pytest.raises(ValueError, match=r"not part of a layout|more than 20000|do not nest"):
        layout_layers(layout)


def test_the_generated_layout_puts_what_is_left_over_in_the_middle() -> None:
    assert balanced_layout(61, 16) == "Et*3|" + "t*4|" * 13 + "t*3|t*3,L"
    assert balanced_layout(5, 2) == "Et*3|t*2,L"
    assert balanced_layout(10, 4, mtp_depths=1) == "Et*2|t*3|t*3|t*2,m*1,L"


@given(st.integers(1, 200), st.integers(1, 64))
def test_a_generated_layout_holds_every_layer_once(num_layers: int, stages: int) -> None:
    stages = min(stages, num_layers)
    counts = layout_layers(balanced_layout(num_layers, stages))
    assert len(counts) == stages
    assert sum(counts) == num_layers
    assert min(counts) >= 1
    assert split_problem(num_layers, stages, 1, balanced_layout(num_layers, stages)) is None


def test_the_fullest_stage() -> None:
    assert largest_stage(56, 4, 2) == 7
    assert largest_stage(61, 16, 2, DEEPSEEK_LAYOUT) == 2
    assert largest_stage(62, 8, 1, None, None, 6) == 8
    assert largest_stage(64, 8, 2, None, 12, 4) == 6
    assert largest_stage(61, 16, 2) == 0


@pytest.mark.parametrize(
    ("given_split", "code"),
    [
        ((56, 3, 1), "pp_splits_layers_unevenly"),
        ((56, 4, 3), "vpp_splits_layers_unevenly"),
        ((61, 16, 1, DEEPSEEK_LAYOUT), "layout_mismatch"),
        ((60, 16, 2, DEEPSEEK_LAYOUT), "layout_mismatch"),
        ((62, 8, 1, None, None, 5), "pp_splits_layers_unevenly"),
        ((62, 1, 1, None, None, 6), "pp_splits_layers_unevenly"),
        ((64, 8, 2, None, 11, 5), "vpp_splits_layers_unevenly"),
        ((10, 2, 1, None, 4, 4), "pp_splits_layers_unevenly"),
    ],
)
def test_an_impossible_split_has_its_code(given_split: tuple[int, int, int], code: str) -> None:
    problem = split_problem(*given_split)
    assert problem is not None
    assert problem[0] == code
