"""The comparison, the text chart and the trace."""

import json
from typing import get_args

import pytest

from projection.schedules import Durations, EqualStages, build, compare, held_over_time, simulate
from projection.schedules.ascii import gantt
from projection.schedules.trace import chrome_trace
from schemas.errors import ScheduleError
from schemas.trial import Schedule


def timeline(name="1f1b", pp=2, vpp=1, m=2):
    return simulate(build(name, pp, vpp, m), Durations.uniform(pp, vpp, 1, 1, 1))


def test_comparison_has_one_row_per_schedule():
    rows = compare(EqualStages(4, 8, 1, 1, 1))
    assert [row["schedule"] for row in rows] == list(get_args(Schedule))
    assert {row["schedule"]: row["makespan"] for row in rows} == {
        "1f1b": 33,
        "interleaved": 28.5,
        "zero-bubble": 27,
        "zb-heuristic": 27,
        "zbv-formatted": 25.5,
        "zbv-greedy-half": 26.5,
        "zbv-greedy-min": 29.5,
        "ilp": 27,
    }
    assert all(row["lower_bound"] <= row["makespan"] for row in rows)
    assert all(len(row["peak_in_flight"]) == 4 for row in rows)
    assert json.loads(json.dumps(rows)) == rows


def test_only_what_was_solved_for_reports_a_gap():
    rows = compare(EqualStages(4, 8, 1, 1, 1))
    assert {row["schedule"]: set(row) for row in rows if "solver" in row}.keys() == {"ilp"}
    assert rows[-1]["solver"]["gap"] == 0
    (slow,) = [row for row in compare(EqualStages(4, 16, 9, 10, 5, 4)) if "solver" in row]
    assert slow["solver"]["gap"] == pytest.approx(1 - slow["lower_bound"] / slow["makespan"])
    assert slow["solver"]["status"] == "HiGHS: optimal"


def test_comparison_fits_the_heuristic_to_the_durations_given():
    rows = {
        row["schedule"]: row["makespan"] for row in compare(EqualStages(8, 32, 8.0, 10.0, 6.0, 1.0))
    }
    assert rows["ilp"] <= rows["zb-heuristic"] < rows["zero-bubble"]


def test_comparison_interleaves_the_chunks_asked_for():
    row = compare(EqualStages(4, 8, 1, 1, 1), vpp=4)[1]
    assert (row["schedule"], row["vpp"]) == ("interleaved", 4)
    with pytest.raises(ScheduleError, match="VPP above 1"):
        compare(EqualStages(4, 8, 1, 1, 1), vpp=1)


def test_text_chart_draws_equal_ops_equally():
    lines = gantt(timeline(), width=25).splitlines()
    assert lines[0] == "rank 0 F0F1....X0XX..X1XX"
    assert lines[1] == "rank 1 ..F0X0XXF1X1XX...."


def test_text_chart_of_a_split_schedule_marks_the_odd_chunk():
    lines = gantt(timeline("zbv-formatted", 1, 2, 1), width=60).splitlines()
    # One rank has both chunks of one microbatch: six passes of eight columns.
    text = lines[0].removeprefix("rank 0 ")
    assert [text[at : at + 2] for at in range(0, 48, 8)] == ["F0", "f0", "b0", "w0", "B0", "W0"]


def test_text_chart_never_exceeds_its_width():
    for width in (20, 80, 200):
        lines = gantt(timeline("zbv-greedy-half", 8, 2, 30), width=width).splitlines()
        assert max(len(line) for line in lines[:-1]) <= width


def test_text_chart_of_no_time_is_empty():
    nothing = simulate(build("1f1b", 2, 1, 2), Durations.uniform(2, 1, 0, 0, 0))
    assert gantt(nothing).splitlines()[0] == "rank 0 "


def test_trace_holds_every_op_in_microseconds():
    trace = chrome_trace(timeline("zero-bubble", 2, 1, 3))
    events = json.loads(json.dumps(trace))["traceEvents"]
    ops = [event for event in events if event["ph"] == "X"]
    assert len(ops) == 2 * 9
    assert ops[0] == {
        "ph": "X",
        "name": "F 0",
        "cat": "forward",
        "pid": 0,
        "tid": 0,
        "ts": 0.0,
        "dur": 1000.0,
        "args": {"microbatch": 0, "chunk": 0},
    }
    assert sum(event["dur"] for event in ops) == 18_000


def test_trace_counts_what_is_in_flight_back_to_zero():
    run = timeline("interleaved", 4, 2, 8)
    counters = [e for e in chrome_trace(run)["traceEvents"] if e["ph"] == "C" and e["tid"] == 0]
    held = [event["args"]["microbatches"] for event in counters]
    assert max(held) == run.peak_in_flight[0]
    assert held[-1] == 0
    assert [event["ts"] for event in counters] == sorted(event["ts"] for event in counters)


def test_trace_counts_in_the_unit_it_is_given():
    run = timeline()
    trace = chrome_trace(run, held_over_time(run, ((3.0,), (4.0,))), "GB")
    counters = [event for event in trace["traceEvents"] if event["ph"] == "C"]
    assert {event["name"] for event in counters} == {"memory, rank 0", "memory, rank 1"}
    assert max(event["args"]["GB"] for event in counters if event["tid"] == 1) == 4


def test_what_is_held_follows_every_pass():
    # Two ranks, F 1 ms, B 1, W 1: rank 0 holds F 0 from 0 and F 1 from 1.
    run = timeline("zero-bubble", 2, 1, 2)
    held, _ = held_over_time(run, ((10.0,), (10.0,)), ((4.0,), (4.0,)))
    ends = {(t.op.kind, t.op.microbatch): t.end_ms for t in run.operations()[0]}
    assert held[:2] == ((0.0, 10.0), (1.0, 20.0))
    assert (ends["B", 0], 14.0) in held
    assert held[-1] == (ends["W", 1], 0.0)


def test_the_most_that_is_held_is_the_peak_in_flight():
    for name, vpp in (("1f1b", 1), ("interleaved", 3), ("zb-heuristic", 1), ("zbv-greedy-min", 2)):
        run = timeline(name, 5, vpp, 13)
        peaks = [max(amount for _, amount in curve) for curve in held_over_time(run)]
        assert peaks == pytest.approx(run.peak_in_flight)
