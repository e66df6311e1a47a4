"""The verifier accepts what is right and refuses every kind of damage."""

import pytest

from projection.schedules import P2P, Durations, build, simulate
from tests.projection.schedules.cases import order_problems, plain, time_problems
from tests.projection.schedules.verifier import check_orders

NAMES = [("1f1b", 1), ("interleaved", 2), ("zero-bubble", 1), ("zbv-greedy-min", 2)]


def lists(name, vpp, pp=4, m=6):
    return [list(order) for order in build(name, pp, vpp, m).orders]


def problems(orders, name, vpp, m=6):
    return check_orders(orders, vpp, m, name.startswith("zbv"))


@pytest.mark.parametrize(("name", "vpp"), NAMES)
def test_undamaged_schedule_has_no_problem(name, vpp):
    assert problems(lists(name, vpp), name, vpp) == []


@pytest.mark.parametrize(("name", "vpp"), NAMES)
@pytest.mark.parametrize("place", [0, 3, -1])
def test_dropped_op_is_caught(name, vpp, place):
    orders = lists(name, vpp)
    del orders[1][place]
    assert any("0 times" in problem for problem in problems(orders, name, vpp))


@pytest.mark.parametrize(("name", "vpp"), NAMES)
@pytest.mark.parametrize("place", [0, 3, 7])
def test_duplicated_op_is_caught(name, vpp, place):
    orders = lists(name, vpp)
    orders[2].insert(place, orders[2][place])
    assert any("2 times" in problem for problem in problems(orders, name, vpp))


@pytest.mark.parametrize(("name", "vpp"), NAMES)
def test_op_on_the_wrong_rank_is_caught(name, vpp):
    orders = lists(name, vpp)
    orders[0].append(orders[1].pop(2))
    assert len(problems(orders, name, vpp)) >= 2


@pytest.mark.parametrize(
    ("name", "vpp"), [pair for pair in NAMES if pair[0][:2] == "zb" or "zero" in pair[0]]
)
def test_weight_gradient_before_its_input_gradient_is_caught(name, vpp):
    orders = lists(name, vpp)
    grad = next(op for op in orders[2] if op[0] == "W")
    orders[2].remove(grad)
    orders[2].insert(orders[2].index(("B", *grad[1:])), grad)
    assert any("W" in problem and "not there" in problem for problem in problems(orders, name, vpp))


@pytest.mark.parametrize(("name", "vpp"), NAMES)
def test_swapped_forward_and_backward_are_caught(name, vpp):
    orders = lists(name, vpp)
    order = orders[3]
    back = next(place for place, op in enumerate(order) if op[0] != "F")
    there = order.index(("F", *order[back][1:]))
    order[back], order[there] = order[there], order[back]
    assert any("not there" in problem for problem in problems(orders, name, vpp))


def test_order_that_every_rank_accepts_but_deadlocks_is_caught():
    orders = [[("F", 0, 0), ("F", 1, 0), ("BW", 0, 0), ("BW", 1, 0)], [("F", 1, 0), ("F", 0, 0)]]
    orders[1] += [("BW", 1, 0), ("BW", 0, 0)]
    assert check_orders(orders, 1, 2, False) == []
    orders[0] = [("F", 0, 0), ("BW", 0, 0), ("F", 1, 0), ("BW", 1, 0)]
    assert check_orders(orders, 1, 2, False) == ["deadlock: 7 ops never become ready"]


def run(name="zero-bubble"):
    schedule = build(name, 4, 1, 6)
    durations, p2p = Durations.uniform(4, 1, 1.0, 1.5, 0.75), P2P.uniform(4, 0.25)
    rows = plain(simulate(schedule, durations, p2p))
    return rows, lambda: time_problems(rows, schedule, durations, p2p)


def test_undamaged_timeline_has_no_problem():
    _, found = run()
    assert found() == []


def test_forward_that_starts_before_its_input_arrives_is_caught():
    rows, found = run()
    kind, i, c, start, end = rows[2][0]
    rows[2][0] = (kind, i, c, start - 0.2, end - 0.2)
    assert any("is there" in problem for problem in found())


def test_overlap_on_a_rank_is_caught():
    rows, found = run()
    kind, i, c, start, end = rows[0][1]
    rows[0][1] = (kind, i, c, start - 0.5, end - 0.5)
    assert any("before its rank is free" in problem for problem in found())


def test_needless_wait_is_caught():
    rows, found = run()
    kind, i, c, start, end = rows[1][-1]
    rows[1][-1] = (kind, i, c, start + 0.5, end + 0.5)
    assert any("later than it could" in problem for problem in found())


def test_op_that_takes_another_time_is_caught():
    rows, found = run()
    kind, i, c, start, end = rows[1][-1]
    rows[1][-1] = (kind, i, c, start, end + 0.5)
    assert any("takes" in problem for problem in found())


def test_damaged_order_is_caught_in_a_timeline_too():
    rows, found = run()
    del rows[0][0]
    assert found()


def test_repository_schedules_pass_through_the_glue():
    assert order_problems(build("interleaved", 4, 3, 8)) == []
