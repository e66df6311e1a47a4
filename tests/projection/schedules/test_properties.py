"""Every schedule, any size, any durations: valid, exact, bounded below."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projection.schedules import V_SCHEDULES, Durations, build, simulate
from projection.schedules.interleaved import group_size, interleaved
from projection.schedules.one_f_one_b import one_f_one_b
from projection.schedules.zbv_formatted import zbv_formatted
from projection.schedules.zero_bubble import zero_bubble
from tests.projection.schedules.cases import (
    FIXED,
    chunks_of,
    delays,
    durations,
    order_problems,
    plain,
    schedules,
    time_problems,
)
from tests.projection.schedules.verifier import peak_alive

slow_ok = settings(deadline=None, max_examples=80)


@slow_ok
@given(schedules())
def test_orders_are_complete_and_free_of_deadlock(schedule):
    for one in schedule.alternatives:
        assert order_problems(one) == []


@slow_ok
@given(st.data())
def test_timeline_follows_the_definition_of_a_pipeline(data):
    schedule = data.draw(schedules())
    times, p2p = data.draw(durations(schedule)), data.draw(delays(schedule))
    timeline = simulate(schedule, times, p2p)
    rows = plain(timeline)
    assert time_problems(rows, schedule, times, p2p) == []
    assert timeline.makespan_ms == max(end for row in rows for *_, end in row)


@settings(deadline=None, max_examples=150)
@given(st.data())
def test_skipping_what_repeats_changes_no_bit(data):
    schedule = data.draw(schedules(max_m=64))
    times, p2p = data.draw(durations(schedule)), data.draw(delays(schedule))
    quick = simulate(schedule, times, p2p)
    full = simulate(schedule, times, p2p, extrapolate=False)
    assert not full.extrapolated
    assert quick.makespan_ms == full.makespan_ms


nearly_equal = st.sampled_from((1.0, 1.0 + 2**-20, 0.999, 1.001, 1.01, 1.25, 0.1))


@settings(deadline=None, max_examples=120)
@given(st.data(), st.sampled_from((0.0, 0.01, 0.9, 5.0)))
def test_skipping_through_long_transients_changes_no_bit(data, delay):
    # Stages that differ by little let queues fill slowly: rates change many times on the way.
    schedule = data.draw(schedules(max_m=300))
    times = data.draw(durations(schedule, nearly_equal))
    quick = simulate(schedule, times, delay)
    assert quick.makespan_ms == simulate(schedule, times, delay, extrapolate=False).makespan_ms


@slow_ok
@given(st.data())
def test_no_run_beats_its_lower_bound(data):
    schedule = data.draw(schedules())
    timeline = simulate(schedule, data.draw(durations(schedule)), data.draw(delays(schedule)))
    assert timeline.lower_bound_ms <= timeline.makespan_ms
    assert max(timeline.busy_ms) <= timeline.makespan_ms
    assert 0 <= timeline.bubble_ratio <= 1


@slow_ok
@given(schedules(max_m=64))
def test_peak_in_flight_is_what_the_order_holds(schedule):
    assert list(schedule.peak_in_flight) == [peak_alive(o, schedule.vpp) for o in schedule.orders]


@slow_ok
@given(st.data())
def test_makespan_scales_with_all_durations(data):
    schedule = data.draw(schedules())
    times, p2p = data.draw(durations(schedule)), data.draw(st.sampled_from((0.0, 0.5, 8.0)))
    doubled = Durations(
        *(
            tuple(tuple(2 * ms for ms in row) for row in table)
            for table in (times.forward, times.input_grad, times.weight_grad)
        )
    )
    once, twice = simulate(schedule, times, p2p), simulate(schedule, doubled, 2 * p2p)
    assert twice.makespan_ms == 2 * once.makespan_ms


@pytest.mark.parametrize("name", FIXED)
def test_every_small_size_is_valid(name):
    for vpp in chunks_of(name):
        for pp in range(1, 9):
            for m in (1, 2, 3, pp - 1, pp, pp + 1, 2 * pp + 1, 3 * pp):
                if m >= 1:
                    assert order_problems(build(name, pp, vpp, m)) == [], (pp, vpp, m)


@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("pp", [12, 16])
def test_long_pipelines_are_valid(name, pp):
    for m in (5, 2 * pp, 9 * pp):
        assert order_problems(build(name, pp, chunks_of(name)[0], m)) == []


CLOSED_FORMS = [
    ("1f1b", 1, one_f_one_b),
    ("zero-bubble", 1, zero_bubble),
    ("zbv-formatted", 2, zbv_formatted),
    ("interleaved", 3, lambda pp, m: interleaved(pp, 3, m, group_size(pp, m))),
]


@pytest.mark.parametrize(("name", "vpp", "closed_form"), CLOSED_FORMS)
def test_lengthened_schedule_is_the_closed_form(name, vpp, closed_form):
    for pp, m in ((1, 90), (2, 50), (3, 120), (5, 100), (8, 128)):
        schedule = build(name, pp, vpp, m)
        assert schedule.program.repeats * schedule.program.period_microbatches > m / 4
        assert schedule.orders == closed_form(pp, m)


@pytest.mark.parametrize("name", [*FIXED, "zb-heuristic"])
def test_long_runs_are_lengthened_and_cost_only_their_transients(name):
    vpp = chunks_of(name)[0]
    schedule = build(name, 16, vpp, 512)
    last = schedule.homes[-1]

    def heavier_ends(ms):
        extra = {(0, 0): 0.1 * ms, last: 0.2 * ms}
        return tuple(
            tuple(ms / vpp + extra.get((rank, chunk), 0.0) for chunk in range(vpp))
            for rank in range(16)
        )

    times = Durations(heavier_ends(3.1), heavier_ends(4.2), heavier_ends(2.9))
    quick = simulate(schedule, times, 0.05)
    assert quick.extrapolated
    assert quick.makespan_ms == simulate(schedule, times, 0.05, extrapolate=False).makespan_ms


@pytest.mark.parametrize("name", [*FIXED, "zb-heuristic"])
def test_a_schedule_of_any_depth_is_lengthened_and_so_are_its_others(name):
    for pp in range(1, 13):
        schedule = build(name, pp, chunks_of(name)[0], 384)
        for one in schedule.alternatives:
            assert one.program.repeats * one.program.period_microbatches > 384 / 2, pp


@pytest.mark.parametrize("name", [*FIXED, "zb-heuristic"])
def test_a_further_microbatch_costs_one_stage_of_work_in_the_steady_state(name):
    vpp = chunks_of(name)[0]
    spans = []
    for m in (64, 128, 192):
        timeline = simulate(build(name, 8, vpp, m), Durations.uniform(8, vpp, 1, 1, 1))
        spans.append(timeline.makespan_ms)
    assert [after - before for before, after in pairwise(spans)] == [3 * 64, 3 * 64]


def test_v_placement_makes_both_ends_of_the_model_meet_on_rank_0():
    for name in V_SCHEDULES:
        schedule = build(name, 4, 2, 4)
        assert schedule.homes[0][0] == schedule.homes[-1][0] == 0
        assert schedule.stages == ((0, 7), (1, 6), (2, 5), (3, 4))


@settings(deadline=None, max_examples=100)
@given(st.data())
def test_the_last_backward_begins_when_the_written_out_run_says(data):
    """On the first rank, of the last microbatch; weight gradients come with BW, or after B."""
    schedule = data.draw(schedules(max_m=60))
    timeline = simulate(schedule, data.draw(durations(schedule)), data.draw(delays(schedule)))
    newest = schedule.num_microbatches - 1
    first = next(
        op for op in timeline.operations()[0] if op.op.kind in "BW" and op.op.microbatch == newest
    )
    begins = first.start_ms if first.op.kind == "BW" else first.end_ms
    assert timeline.last_backward_ms == timeline.makespan_ms - begins
