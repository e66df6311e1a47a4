"""The simulator on orders it is handed, and on numbers it must refuse."""

import pytest

from projection.schedules import P2P, Durations, Op, build, from_orders, repeat, simulate
from schemas.errors import ScheduleError


def F(i, c=0):
    return Op("F", i, c)


def BW(i, c=0):
    return Op("BW", i, c)


GPIPE = ((F(0), F(1), BW(0), BW(1)), (F(0), F(1), BW(0), BW(1)))


def test_any_valid_order_can_be_run():
    timeline = simulate(from_orders("1f1b", GPIPE, 1, 2), Durations.uniform(2, 1, 1, 1, 1))
    assert timeline.makespan_ms == 9
    assert timeline.peak_in_flight == (2, 2)
    assert timeline.busy_ms == (6, 6)
    assert timeline.bubble_ratio == pytest.approx(1 / 3)


def test_deadlock_names_what_every_blocked_rank_waits_at():
    orders = ((F(0), BW(0), F(1), BW(1)), (F(1), F(0), BW(1), BW(0)))
    with pytest.raises(ScheduleError) as error:
        from_orders("1f1b", orders, 1, 2)
    assert "deadlocks" in str(error.value)
    assert "rank 0 at BW(microbatch 0, chunk 0)" in str(error.value)
    assert "rank 1 at F(microbatch 1, chunk 0)" in str(error.value)


def test_weight_gradient_before_its_input_gradient_is_a_deadlock():
    order = (F(0), Op("W", 0, 0), Op("B", 0, 0))
    with pytest.raises(ScheduleError, match=r"rank 0 at W\(microbatch 0"):
        from_orders("zero-bubble", (order,), 1, 1)


@pytest.mark.parametrize(
    "order",
    [
        (F(0), F(1), BW(0)),
        (F(0), F(1), BW(0), BW(1), BW(1)),
        (F(0), F(1), BW(0), Op("B", 1, 0)),
        (F(0), F(1), BW(0), BW(1), F(2)),
        (F(0), F(1), BW(0), BW(1), F(0, 1)),
    ],
)
def test_incomplete_order_is_refused_and_the_op_named(order):
    with pytest.raises(ScheduleError, match="rank 0 does not run every op exactly once: "):
        from_orders("1f1b", (order,), 1, 2)


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("field", range(4))
def test_impossible_numbers_are_refused(bad, field):
    numbers = [1.0, 1.0, 1.0, 0.0]
    numbers[field] = bad
    with pytest.raises(ScheduleError, match="finite and not negative"):
        simulate(build("1f1b", 2, 1, 2), Durations.uniform(2, 1, *numbers[:3]), numbers[3])


def test_durations_of_another_shape_are_refused():
    with pytest.raises(ScheduleError, match="has 4 ranks of 1"):
        simulate(build("1f1b", 4, 1, 8), Durations.uniform(2, 2, 1, 1, 1))
    with pytest.raises(ScheduleError, match="4 virtual stages have 3"):
        simulate(build("1f1b", 4, 1, 8), Durations.uniform(4, 1, 1, 1, 1), P2P.uniform(3, 0.1))


def test_passes_that_take_no_time_are_run():
    timeline = simulate(build("zero-bubble", 4, 1, 8), Durations.uniform(4, 1, 0, 0, 0))
    assert (timeline.makespan_ms, timeline.bubble_ratio, timeline.lower_bound_ms) == (0, 0, 0)


def test_uneven_last_stage_sets_the_pace():
    heavy = ((1.0,), (1.0,), (1.0,), (2.0,))
    timeline = simulate(build("1f1b", 4, 1, 64), Durations(heavy, heavy, heavy))
    assert timeline.makespan_ms == 3 + 64 * 6 + 3 * 2
    assert timeline.extrapolated


def test_cycles_longer_than_a_microbatch_are_found():
    # A transfer this slow makes the round trip of all microbatches in flight the cycle.
    schedule, times = build("1f1b", 4, 1, 200), Durations.uniform(4, 1, 1, 1.5, 0.75)
    quick, full = (simulate(schedule, times, 7.0, extrapolate=x) for x in (True, False))
    assert quick.extrapolated
    assert quick.makespan_ms == full.makespan_ms > 1.4 * 200 * 3.25


@pytest.mark.parametrize(
    ("name", "vpp"), [("1f1b", 1), ("zero-bubble", 1), ("zbv-formatted", 2), ("zbv-greedy-half", 2)]
)
@pytest.mark.parametrize("delay", [0.0, 0.5])
def test_slowly_filling_queues_are_skipped_too(monkeypatch, name, vpp, delay):
    # The ends are 0.1 % apart: the queue between them takes thousands of microbatches to fill.
    schedule = build(name, 8, vpp, 2000)
    heavier = {schedule.homes[0]: 1.3, schedule.homes[-1]: 1.3013}
    table = tuple(tuple(heavier.get((rank, c), 1.0) for c in range(vpp)) for rank in range(8))
    times = Durations(table, table, table)
    full = simulate(schedule, times, delay, extrapolate=False)
    run, rows = repeat.advance, 0

    def counted(ends, block):
        nonlocal rows
        before = len(ends)
        run(ends, block)
        rows += len(ends) - before

    monkeypatch.setattr(repeat, "advance", counted)
    quick = simulate(schedule, times, delay)
    assert quick.makespan_ms == full.makespan_ms
    assert rows < 0.15 * 2000 * 2 * 8 * vpp


def test_running_all_of_a_long_schedule_gives_the_times_of_its_ops():
    schedule = build("zbv-greedy-half", 4, 2, 100)
    timeline = simulate(schedule, Durations.uniform(4, 2, 1, 2, 1), 0.1)
    rows = timeline.operations()
    assert timeline.extrapolated
    assert [len(row) for row in rows] == [600] * 4
    assert max(row[-1].end_ms for row in rows) == timeline.makespan_ms
