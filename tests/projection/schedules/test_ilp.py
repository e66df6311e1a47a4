"""The solver's orders: optimal where that can be enumerated, never worse than the greedy ones."""

from itertools import product

import pytest

from projection.schedules import Durations, PassTimes, build, from_orders, simulate
from projection.schedules.ilp import MAX_PASSES, place_grads
from projection.schedules.order import Op
from projection.schedules.zb_heuristic import zb_heuristic
from tests.projection.schedules.cases import order_problems


def run(schedule, times):
    f, b, w, p2p = map(float, times)
    return simulate(schedule, Durations.uniform(schedule.pp, 1, f, b, w), p2p)


def placements(order):
    """Every way to put the W's of a rank behind its B's, in their order."""
    passes = [op for op in order if op.kind != "W"]
    grads = [Op("W", op.microbatch, 0) for op in passes if op.kind == "B"]
    for counts in product(range(len(grads) + 1), repeat=len(passes)):
        backwards = ran = 0
        merged = []
        for op, count in zip(passes, counts, strict=True):
            backwards += op.kind == "B"
            merged += [op, *grads[ran : ran + count]]
            ran += count
            if ran > backwards:
                break
        else:
            if ran == len(grads):
                yield tuple(merged)


@pytest.mark.parametrize("times", [(4, 5, 3, 1), (2, 3, 5, 4), (6, 2, 3, 5), (5, 6, 3, 2)])
def test_placement_is_optimal_among_all_of_a_small_pipeline(times):
    pp, m = 2, 3
    solved = place_grads(pp, m, PassTimes(*times))
    choices = [list(placements(order)) for order in zb_heuristic(pp, m, PassTimes(*times))]
    best = min(
        run(from_orders("ilp", orders, 1, m), times).makespan_ms for orders in product(*choices)
    )
    assert solved.report.makespan <= best


@pytest.mark.parametrize(
    ("pp", "m", "times"), [(4, 8, (10, 12, 6, 5)), (4, 16, (10, 12, 6, 5)), (8, 8, (10, 12, 6, 5))]
)
def test_solver_improves_on_the_greedy_order(pp, m, times):
    schedule = build("ilp", pp, 1, m, PassTimes(*times))
    report = schedule.solver
    assert order_problems(schedule) == []
    assert report.status == "HiGHS: optimal"
    assert report.makespan < report.greedy_makespan
    assert report.makespan == run(schedule, times).makespan_ms
    assert report.gap == pytest.approx(1 - report.lower_bound / report.makespan)
    assert report.placement_gap == pytest.approx(0, abs=1e-3)
    assert max(schedule.peak_in_flight) <= 2 * pp


def test_same_sizes_give_the_same_order():
    first = place_grads(4, 8, PassTimes(10, 12, 6, 5))
    assert place_grads(4, 8, PassTimes(10, 12, 6, 5)) == first


def test_order_that_meets_the_bound_needs_no_solver():
    report = build("ilp", 4, 1, 8).solver
    assert (report.gap, report.placement_gap, report.nodes) == (0, None, 0)


def test_too_many_passes_keep_the_greedy_order_and_say_so():
    times = PassTimes(4, 8, 4, 2)
    schedule = build("ilp", 8, 1, 2 * MAX_PASSES, times)
    assert "unsolved" in schedule.solver.status
    assert schedule.solver.placement_gap is None
    assert 0 < schedule.solver.gap < 0.05
    assert schedule.orders == build("zb-heuristic", 8, 1, 2 * MAX_PASSES, times).orders
    assert schedule.solver.makespan == run(schedule, times).makespan_ms
