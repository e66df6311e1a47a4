"""Activation bytes over the life of a schedule."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projection.schedules import activation_high_water, build
from schemas.errors import ScheduleError
from tests.projection.schedules.cases import schedules, tables

sizes = st.floats(0, 1e9)


def replay(schedule, whole, left):
    """High-water by adding and taking away, op by op, of whichever order needs most."""
    return [
        max(peaks)
        for peaks in zip(
            *(replay_order(one.orders, whole, left) for one in schedule.alternatives),
            strict=True,
        )
    ]


def replay_order(orders, whole, left):
    peaks = []
    for rank, order in enumerate(orders):
        now, most = 0.0, 0.0
        for kind, _, chunk in order:
            full, kept = whole[rank][chunk], left[rank][chunk]
            now += {"F": full, "B": kept - full, "W": -kept, "BW": -full}[kind]
            most = max(most, now)
        peaks.append(most)
    return peaks


@settings(deadline=None, max_examples=80)
@given(st.data())
def test_high_water_is_that_of_replaying_every_op(data):
    schedule = data.draw(schedules())
    whole = data.draw(tables(schedule.pp, schedule.vpp, sizes))
    left = data.draw(st.one_of(st.none(), tables(schedule.pp, schedule.vpp, sizes)))
    found = activation_high_water(schedule, whole, left)
    assert found == pytest.approx(replay(schedule, whole, left or whole), rel=1e-9, abs=1e-3)


def test_equal_chunks_give_the_peak_in_flight():
    schedule = build("interleaved", 8, 2, 32)
    assert activation_high_water(schedule, ((1.0, 1.0),) * 8)[0] == 23 == 2 * 11.5


def test_freeing_at_the_input_gradient_saves_what_waits_for_w():
    schedule = build("zero-bubble", 4, 1, 8)
    kept_all = activation_high_water(schedule, ((10.0,),) * 4)
    freed_half = activation_high_water(schedule, ((10.0,),) * 4, ((5.0,),) * 4)
    freed_all = activation_high_water(schedule, ((10.0,),) * 4, ((0.0,),) * 4)
    assert kept_all == (40, 40, 40, 40)
    assert freed_all == (40, 30, 20, 10)
    assert freed_half == (40, 35, 30, 25)


def test_a_long_run_holds_what_a_short_one_does():
    short, long = build("zbv-greedy-min", 8, 2, 49), build("zbv-greedy-min", 8, 2, 481)
    assert short.live_states == long.live_states


def test_table_of_another_shape_is_refused():
    with pytest.raises(ScheduleError, match="bytes_per_chunk is not a table of 4 ranks x 1 chunks"):
        activation_high_water(build("1f1b", 4, 1, 8), ((1.0, 1.0),) * 4)
