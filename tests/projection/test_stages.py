"""Which layers sit where: every layer once, ends in place, uneven splits and layouts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projection.stages import StageMap, layer_counts, parse_layout, stage_map
from schemas.errors import WorkloadError
from tests.builders import DEEPSEEK_LAYOUT, deepseek_v3, llama_70b

LLAMA = llama_70b().architecture
DEEPSEEK = deepseek_v3().architecture


def layers_of(stages: StageMap) -> list[int]:
    return sorted(layer for row in stages.chunks for chunk in row for layer in chunk.layers)


@given(
    num_layers=st.integers(1, 130),
    pp=st.integers(1, 16),
    vpp=st.integers(1, 6),
    schedule=st.sampled_from(["1f1b", "interleaved", "zbv-formatted"]),
)
def test_every_layer_sits_on_exactly_one_stage(
    num_layers: int, pp: int, vpp: int, schedule: str
) -> None:
    architecture = LLAMA.model_copy(update={"num_layers": num_layers})
    if num_layers < pp * vpp:
        with pytest.raises(WorkloadError, match="cannot fill"):
            stage_map(architecture, schedule, pp, vpp)
        return
    stages = stage_map(architecture, schedule, pp, vpp)
    assert layers_of(stages) == list(range(num_layers))
    sizes = [len(chunk.layers) for row in stages.chunks for chunk in row]
    assert max(sizes) - min(sizes) <= 1
    assert sum(chunk.embedding for row in stages.chunks for chunk in row) == 1
    assert sum(chunk.output for row in stages.chunks for chunk in row) == 1


def test_a_remainder_goes_to_the_first_stages_and_drops_no_layer() -> None:
    # 30 layers over 4 stages: an estimator that divides loses two of them.
    assert layer_counts(30, 4, 1) == (8, 8, 7, 7)


@given(
    first=st.none() | st.integers(1, 20),
    last=st.none() | st.integers(1, 20),
    pp=st.integers(2, 8),
    vpp=st.integers(1, 3),
)
def test_given_ends_keep_their_counts_over_all_their_chunks(
    first: int | None, last: int | None, pp: int, vpp: int
) -> None:
    try:
        counts = layer_counts(64, pp, vpp, first, last)
    except WorkloadError:
        return
    assert sum(counts) == 64
    on_rank = [sum(counts[chunk * pp + rank] for chunk in range(vpp)) for rank in range(pp)]
    assert first is None or on_rank[0] == first
    assert last is None or on_rank[-1] == last


def test_uneven_ends_are_not_averaged() -> None:
    assert layer_counts(61, 4, 1, first=15, last=14) == (15, 16, 16, 14)


def test_v_placement_puts_both_ends_on_the_first_rank() -> None:
    stages = stage_map(LLAMA, "zbv-formatted", 4, 2)
    assert stages.rank_of_embedding() == stages.rank_of_output() == 0
    assert stages.chunks[3][0].layers[-1] + 1 == stages.chunks[3][1].layers[0]


def test_interleaved_deals_virtual_stages_round_robin() -> None:
    stages = stage_map(LLAMA, "interleaved", 4, 2)
    assert [chunk.stage for chunk in stages.chunks[1]] == [1, 5]
    assert stages.rank_of_output() == 3


def test_a_layout_places_layers_as_written() -> None:
    stages = parse_layout(DEEPSEEK_LAYOUT, DEEPSEEK, 32)
    assert [len(stage.layers) for stage in stages] == [1, 1] + [2] * 29 + [1]
    assert stages[0].embedding
    assert stages[-1].output


def test_layout_repeats_may_be_nested() -> None:
    small = LLAMA.model_copy(update={"num_layers": 12})
    stages = parse_layout("E|(t*2|)*4(tt|)*2,L", small, 8)
    assert [len(stage.layers) for stage in stages] == [0, 2, 2, 2, 2, 2, 2, 0]


@pytest.mark.parametrize(
    ("layout", "problem"),
    [
        ("Et*80L", "1 stages, pp·vpp is 2"),
        ("Et*40|t*39L", "79 decoder layers, num_layers is 80"),
        ("t*40|t*40L", "begins with E"),
        ("Ex*40|t*40L", "not part of a layout"),
        ("E(t*9000)*9000|t*40L", "more than 20000 layers"),
        ("Et*40|t*40mL", "1 prediction layers, mtp_num_layers is 0"),
    ],
)
def test_a_layout_of_another_model_is_refused_with_its_numbers(layout: str, problem: str) -> None:
    with pytest.raises(WorkloadError, match=problem):
        parse_layout(layout, LLAMA, 2)


def test_mtp_depths_follow_the_output_head_unless_the_layout_places_them() -> None:
    model = LLAMA.model_copy(update={"mtp_num_layers": 1})
    assert [stage.mtp for stage in parse_layout("Et*40|t*40L", model, 2)] == [0, 1]
    assert [stage.mtp for stage in parse_layout("Et*40|t*40m|L", model, 3)] == [0, 1, 0]
    assert stage_map(model, "1f1b", 2, 1).chunks[1][0].mtp == 1
