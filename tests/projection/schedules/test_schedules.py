"""Makespans, memory and refusals of the schedules themselves."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from projection.schedules import (
    P2P,
    Durations,
    PassTimes,
    build,
    coarse_pass_times,
    simulate,
    stage_of,
)
from projection.schedules.interleaved import group_size
from schemas.errors import ScheduleError
from tests.projection.schedules.cases import chunks_of, delays, durations

# F = B = W = 1 per microbatch of a whole stage, no P2P. Published figures of a reference
# implementation: (pp, microbatches) -> makespan, most microbatches in flight on rank 0.
REACHED = {
    ("1f1b", 1): {(4, 8): (33, 4), (8, 32): (117, 8)},
    ("interleaved", 2): {(4, 8): (28.5, 5.5), (8, 32): (106.5, 11.5)},
    ("zero-bubble", 1): {(4, 8): (27, 4), (8, 32): (103, 8)},
    ("zb-heuristic", 1): {(4, 8): (27, 4), (8, 32): (103, 8)},
    ("ilp", 1): {(4, 8): (27, 4), (8, 32): (103, 8)},
    ("zbv-formatted", 2): {(4, 8): (25.5, 4), (8, 32): (99.5, 8)},
    ("zbv-greedy-half", 2): {(4, 8): (26.5, 3), (8, 32): (104.5, 5)},
    ("zbv-greedy-min", 2): {(4, 8): (29.5, 2), (8, 32): (109, 4)},
}
CASES = [(*key, *size, *goal) for key, sizes in REACHED.items() for size, goal in sizes.items()]


def span(name, pp, vpp, m, f=1.0, b=1.0, w=1.0, p2p=0.0, times=None):
    schedule = build(name, pp, vpp, m, times) if times else build(name, pp, vpp, m)
    return simulate(schedule, Durations.uniform(pp, vpp, f, b, w), p2p)


@pytest.mark.parametrize(("name", "vpp", "pp", "m", "makespan", "in_flight"), CASES)
def test_reference_makespan_and_memory_are_reached(name, vpp, pp, m, makespan, in_flight):
    timeline = span(name, pp, vpp, m)
    assert timeline.makespan_ms <= makespan
    assert timeline.peak_in_flight[0] <= in_flight
    assert max(timeline.peak_in_flight) <= in_flight


@pytest.mark.parametrize("pp", range(1, 17))
def test_1f1b_matches_its_closed_form(pp):
    for m in (1, pp, 4 * pp):
        timeline = span("1f1b", pp, 1, m, 2, 3, 1)
        assert timeline.makespan_ms == (m + pp - 1) * 6
        assert timeline.bubble_ratio == pytest.approx((pp - 1) / (m + pp - 1))
        assert timeline.peak_in_flight == tuple(min(pp - rank, m) for rank in range(pp))


@pytest.mark.parametrize("vpp", [2, 3, 4])
def test_interleaving_divides_the_bubble_by_the_chunks(vpp):
    for pp in (2, 4, 8):
        timeline = span("interleaved", pp, vpp, 4 * pp, 1, 1, 1)
        bubble = timeline.makespan_ms - 3 * 4 * pp
        assert bubble == pytest.approx(3 * (pp - 1) / vpp)


@pytest.mark.parametrize("pp", range(2, 17))
def test_zero_bubble_only_waits_for_the_way_to_the_last_rank(pp):
    assert span("zero-bubble", pp, 1, 3 * pp).makespan_ms == 9 * pp + pp - 1
    assert max(build("zero-bubble", pp, 1, 3 * pp).peak_in_flight) == pp


@pytest.mark.parametrize("pp", range(2, 17))
def test_formatted_v_only_waits_for_the_way_to_the_last_rank(pp):
    timeline = span("zbv-formatted", pp, 2, 3 * pp)
    assert timeline.makespan_ms == timeline.lower_bound_ms == 9 * pp + (pp - 1) / 2
    assert max(timeline.peak_in_flight) == pp


@pytest.mark.parametrize("pp", range(2, 17))
def test_v_half_and_v_min_keep_their_memory(pp):
    half, least = build("zbv-greedy-half", pp, 2, 4 * pp), build("zbv-greedy-min", pp, 2, 4 * pp)
    assert max(half.peak_in_flight) <= pp / 2 + 1
    assert max(least.peak_in_flight) == (pp + 4) // 3


GREEDY = ["zb-heuristic", "zbv-greedy-half", "zbv-greedy-min"]


@pytest.mark.parametrize("name", GREEDY)
@pytest.mark.parametrize(
    "times", [(10, 11, 6), (2, 3, 2), (10, 17, 3), (5, 10, 1), (2, 1, 1), (1, 3, 1), (1, 2, 0)]
)
@pytest.mark.parametrize("p2p", [0.0, 0.5])
def test_twice_the_microbatches_of_unlike_passes_take_no_more_than_twice_as_long(name, times, p2p):
    """Though these orders are made for unit passes and instant transfers."""
    vpp = 2 if name.startswith("zbv") else 1
    for pp in (2, 3, 4, 6, 8):
        for m in (1, 2, 3, 4, 5, 6, 8, 16, 23):
            once, twice = (span(name, pp, vpp, n, *times, p2p) for n in (m, 2 * m))
            assert twice.makespan_ms <= (1 + 1e-9) * 2 * once.makespan_ms, (pp, m)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_twice_the_microbatches_of_uneven_stages_take_hardly_more_than_twice_as_long(data):
    name = data.draw(st.sampled_from(GREEDY))
    once = build(
        name, data.draw(st.integers(1, 8)), chunks_of(name)[0], data.draw(st.integers(1, 40))
    )
    passes = data.draw(durations(once, st.floats(0.05, 3)))
    edges = data.draw(delays(once, st.floats(0, 1)))
    twice = build(name, once.pp, once.vpp, 2 * once.num_microbatches)
    longest = 1.01 * 2 * simulate(once, passes, edges).makespan_ms
    assert simulate(twice, passes, edges).makespan_ms <= longest


def test_half_of_the_microbatches_run_twice_where_their_order_suits_the_passes_better():
    """V-min on four ranks, weight gradients a fifth of a forward pass: attention alone, about."""
    once, twice = (span("zbv-greedy-min", 4, 2, m, 5, 10, 1) for m in (4, 8))
    assert twice.makespan_ms <= 2 * once.makespan_ms
    assert [op._replace(microbatch=0) for op in twice.schedule.orders[0]] == 2 * [
        op._replace(microbatch=0) for op in once.schedule.orders[0]
    ]
    assert max(twice.peak_in_flight) <= max(build("zbv-greedy-min", 4, 2, 8).peak_in_flight)
    assert span("zbv-greedy-min", 4, 2, 8).schedule is build("zbv-greedy-min", 4, 2, 8)


def test_which_other_orders_there_are_does_not_depend_on_what_was_built_before():
    assert build("zbv-greedy-half", 9, 2, 1000).others == ()
    for pp in range(1, 31):  # enough others to drop what the one above is made from
        for m in range(1, pp + 4):
            build("1f1b", pp, 1, m)
    assert build("zbv-greedy-half", 9, 2, 2000).others == ()


@pytest.mark.parametrize("name", ["1f1b", "zero-bubble", "zbv-formatted", "zbv-greedy-half"])
def test_fewer_microbatches_than_stages_run(name):
    vpp = 2 if name.startswith("zbv") else 1
    spans = [span(name, 8, vpp, m).makespan_ms for m in range(1, 8)]
    assert spans == sorted(set(spans))
    # One microbatch passes all stages twice and leaves W's behind.
    assert 16 <= spans[0] <= 24


def test_one_microbatch_of_1f1b_passes_every_stage_twice():
    assert span("1f1b", 8, 1, 1).makespan_ms == 24


def test_interleaving_two_microbatches_over_four_ranks_takes_the_whole_way():
    # Eight F of 0.5 and eight BW of 1 for the first; F and BW of the second behind it at the turn.
    assert span("interleaved", 4, 2, 2).makespan_ms == 12 + 1.5


@pytest.mark.parametrize(
    ("pp", "m", "group"),
    [(4, 8, 4), (4, 9, 5), (4, 11, 6), (4, 13, 7), (4, 3, 3), (4, 4, 4), (1, 5, 1)],
)
def test_interleaved_groups_leave_no_remainder_below_the_ranks(pp, m, group):
    assert group_size(pp, m) == group


def test_interleaved_order_of_two_ranks_is_megatrons():
    assert [op[0] for op in build("interleaved", 2, 2, 2).orders[0]] == ["F"] * 4 + ["BW"] * 4
    assert [tuple(op) for op in build("interleaved", 2, 2, 2).orders[1]] == [
        ("F", 0, 0),
        ("F", 1, 0),
        ("F", 0, 1),
        ("BW", 0, 1),
        ("F", 1, 1),
        ("BW", 1, 1),
        ("BW", 0, 0),
        ("BW", 1, 0),
    ]


def test_slow_transfers_lengthen_the_fill_and_the_drain():
    assert span("1f1b", 4, 1, 1, p2p=0.5).makespan_ms == 12 + 6 * 0.5


def test_edges_within_a_rank_of_the_v_are_free():
    timeline = span("zbv-formatted", 1, 2, 4, p2p=100.0)
    assert timeline.makespan_ms == 12


def test_a_delay_is_paid_on_its_own_edge_and_direction():
    schedule, times = build("1f1b", 3, 1, 1), Durations.uniform(3, 1, 1, 1, 1)
    assert simulate(schedule, times, P2P((1.0, 10.0), (100.0, 1000.0))).makespan_ms == 9 + 1111


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 8),
    st.integers(1, 40),
    st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(1, 12), st.integers(0, 6)),
)
@example(4, 4, (2, 3, 4, 0))  # no greedy run is as fast as the fixed order
def test_heuristic_fitted_to_its_times_is_no_slower_than_the_fixed_order(pp, m, sizes):
    times = PassTimes(*sizes)
    f, b, w, p2p = map(float, sizes)
    fitted = span("zb-heuristic", pp, 1, m, f, b, w, p2p, times)
    fixed = span("zero-bubble", pp, 1, m, f, b, w, p2p)
    assert fitted.makespan_ms <= fixed.makespan_ms
    assert max(fitted.peak_in_flight) <= 2 * pp


def test_fixed_orders_ignore_pass_times():
    assert build("1f1b", 4, 1, 8, PassTimes(3, 5, 2, 1)) is build("1f1b", 4, 1, 8)


def test_pass_times_are_coarse():
    near = [coarse_pass_times(Durations.uniform(4, 1, f, 2.0, 1.0), 0.1) for f in (1.0, 1.01)]
    assert near[0] == near[1] == PassTimes(6, 12, 6, 1)
    assert coarse_pass_times(Durations.uniform(4, 1, 1, 1, 1)) == PassTimes(1, 1, 1, 0)
    assert coarse_pass_times(Durations.uniform(4, 1, 0, 0, 0)) == PassTimes(1, 1, 1, 0)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("1f1b", 4, 2, 8), "needs VPP 1"),
        (("interleaved", 4, 1, 8), "needs VPP above 1"),
        (("zbv-formatted", 4, 1, 8), "needs VPP 2"),
        (("ilp", 4, 2, 8), "needs VPP 1"),
        (("1f1b", 0, 1, 8), "pp is 0"),
        (("1f1b", 4, 1, 0), "microbatches is 0"),
        (("1f1c", 4, 1, 8), "no schedule '1f1c'; there are 1f1b"),
        (("zb-heuristic", 4, 1, 8, PassTimes(0, 1, 1, 0)), "pass times"),
    ],
)
def test_schedule_that_does_not_exist_is_refused_with_its_reason(arguments, reason):
    with pytest.raises(ScheduleError, match=reason):
        build(*arguments)


def test_stage_outside_the_pipeline_is_refused():
    assert stage_of("interleaved", 1, 2, 4, 3) == 9
    assert stage_of("zbv-formatted", 1, 1, 4, 2) == 6
    with pytest.raises(ScheduleError, match="rank 4"):
        stage_of("1f1b", 4, 0, 4, 1)
