"""Skipping repetitions of any block of max-plus rows, not only those that schedules make."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projection.schedules.repeat import MIN_ROWS_BETWEEN_COMPARISONS, run_all, run_repeats

costs = st.one_of(st.integers(0, 3), st.integers(0, 60)).map(float)


@st.composite
def blocks(draw):
    """(window, rows): every row reads two ends in front of it, of its own block or the last."""
    window = draw(st.integers(1, 6))
    length = draw(st.integers(window, 12))
    rows = []
    for place in range(window, window + length):
        before = st.integers(0, place - 1)
        rows.append((draw(before), draw(before), draw(costs), draw(costs), draw(costs)))
    return window, rows


def both(block, window, ends, repeats):
    places = np.array([[row[0] for row in block], [row[1] for row in block]])
    quick, skipped = run_repeats(list(ends), block, places, repeats, window)
    return quick, skipped, run_all(list(ends), block, repeats, window)


def steps(count, block):
    """Blocks in that many comparisons: nothing is run behind the last, which could mend an end."""
    return count * -(-MIN_ROWS_BETWEEN_COMPARISONS // len(block))


@settings(deadline=None, max_examples=400)
@given(blocks(), st.data())
def test_every_end_is_that_of_running_all_blocks(drawn, data):
    window, block = drawn
    ends = data.draw(st.lists(costs, min_size=window, max_size=window))
    repeats = steps(data.draw(st.integers(1, 80)), block) + data.draw(st.sampled_from((0, 0, 1)))
    quick, _, full = both(block, window, ends, repeats)
    assert quick == full


def two_clocks(slow, fast, head_start):
    """Two rows that count for themselves, and one that follows whichever is ahead."""
    block = [(0, 0, 0.0, 0.0, slow), (1, 1, 0.0, 0.0, fast), (3, 4, 0.0, 0.0, 0.0)]
    return block, [head_start, 0.0, head_start]


@pytest.mark.parametrize("head_start", [1000.0, 1001.0, 12345.0])
def test_a_slow_leader_is_overtaken_on_time(head_start):
    block, ends = two_clocks(10.0, 11.0, head_start)
    for count in (40, 45, 46, 47, 200, 560, 561, 562, 900):
        repeats = steps(count, block)
        quick, skipped, full = both(block, 3, ends, repeats)
        assert skipped
        assert quick == full
        assert quick[2] == max(head_start + 10 * repeats, 11 * repeats)


def test_few_blocks_are_simply_run():
    block, ends = two_clocks(10.0, 11.0, 5.0)
    quick, skipped, full = both(block, 3, ends, 7)
    assert not skipped
    assert quick == full


def test_a_row_that_just_changed_its_leader_is_not_trusted():
    # r follows a (20 a block) and, from the first block of the third comparison on, b (40); c
    # follows d (39, far ahead) and later r. In the cycle in which r changes it moves by less than
    # d, which it overtakes all the same.
    a, b, d, window = 0, 1, 2, 4
    block = [(a, b, 0.0, 0.0, 0.0), (a, a, 0.0, 0.0, 20.0), (b, b, 0.0, 0.0, 40.0)]
    block += [(d, d, 0.0, 0.0, 39.0), (window, 7, 0.0, 0.0, 0.0)]
    repeats, head_start = steps(2000, block), 20.0 * steps(2, block)
    quick, skipped, full = both(block, window, [head_start, 0.0, 10_000.0, 0.0], repeats)
    assert skipped
    assert quick == full
    assert quick[-1] == 40.0 * (repeats - 1)
