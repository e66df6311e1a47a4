"""The tool belt on its own: what each tool says, costs and refuses."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flows.desk import INVESTIGATOR, MOST_NOTES, MOST_PER_ROUND, Desk
from schemas.errors import LogError
from storage.canonical import canonical
from tests.llm.desks import Opened, opened

TOOLS = {
    "evaluate_memory_only", "evaluate_simulate", "get_history", "get_best", "get_legal_axes",
    "get_architecture", "get_cluster", "get_budget_status", "note_to_scratchpad",
    "read_scratchpad", "query_llm",
}  # fmt: skip


@pytest.fixture
def at(tmp_path: Path) -> Any:
    with opened(tmp_path) as desk:
        yield desk


def calls_of(at: Opened) -> int:
    return at.state.spent.perf_calls


def test_the_belt_has_eleven_documented_tools(at: Opened):
    tools = at.desk.tools()
    assert {tool.__name__ for tool in tools} == TOOLS
    assert all(inspect.getdoc(tool) for tool in tools)


def test_a_simulation_costs_a_call_and_says_what_limits_it(at: Opened):
    before = calls_of(at)
    said = at.desk.evaluate_simulate({"mbs": 1, "vpp": 2})
    trial = at.state.trials[int(said["trial"][1:])]
    assert trial.scored is not None
    assert calls_of(at) == before + 1
    evaluation = trial.scored.evaluation
    assert said["knobs"] == {"mbs": 1, "vpp": 2, "pp_schedule": "interleaved"}
    assert said["tokens_per_s_per_gpu"] == round(evaluation.tokens_per_s_per_gpu or 0, 1)
    assert said["memory_per_gpu_gb"] == round(evaluation.memory_per_gpu_gb or 0, 1)
    room = evaluation.cap_gb - (evaluation.memory_per_gpu_gb or 0)
    assert said["headroom_gb"] == round(room, 1)
    assert list(said["time_breakdown_ms"].values()) == sorted(
        said["time_breakdown_ms"].values(), reverse=True
    )
    assert sum(said["time_breakdown_ms"].values()) == pytest.approx(said["iteration_ms"], rel=0.01)
    best = at.state.best
    assert best is not None
    assert best.score is not None
    apart = 100 * ((trial.score or 0) / best.score - 1)
    assert said["percent_to_incumbent"] == round(apart, 2)


def test_a_memory_question_costs_no_call_and_leaves_the_trial_open_for_a_simulation(at: Opened):
    before = calls_of(at)
    said = at.desk.evaluate_memory_only({"mbs": 1})
    number = int(said["trial"][1:])
    assert said["fits"] is True
    assert said["memory_breakdown_gb"]
    assert "tokens_per_s_per_gpu" not in said
    assert calls_of(at) == before
    assert at.state.in_flight == (number,)
    again = at.desk.evaluate_memory_only({"mbs": 1})
    assert again == said
    assert at.desk.evaluate_simulate({"mbs": 1})["trial"] == said["trial"]
    assert at.state.trials[number].scored is not None
    assert not at.state.in_flight


def test_a_candidate_that_cannot_be_is_rejected_with_its_numbers(at: Opened):
    illegal = at.desk.evaluate_memory_only({"tp": 3})
    assert illegal["rejected"]
    assert illegal["reason"]
    large = at.desk.evaluate_simulate({"mbs": 4})
    assert large["rejected"] == "does_not_fit"
    assert "more than the cap" in large["reason"]
    assert large["fits"] is False
    assert large["headroom_gb"] < 0
    assert calls_of(at) == at.state.conservation.evaluations


def test_what_is_known_is_answered_from_the_record(at: Opened):
    said = at.desk.evaluate_simulate({"mbs": 1})
    events = at.state.head_seq
    assert at.desk.evaluate_simulate({"mbs": "1"}) == said
    assert at.desk.evaluate_memory_only({"mbs": 1, "fp8": "none"}) == said
    assert at.desk.evaluate_simulate({})["trial"] == "#0"
    assert at.state.head_seq == events


def test_get_history_has_a_line_per_trial_and_its_apart_knobs(at: Opened):
    at.desk.evaluate_simulate({"mbs": 1, "vpp": 2})
    lines = at.desk.get_history()
    assert len(lines) == len(at.state.trials)
    knobs = lines[-1].rpartition(" | ")[2].split()
    assert {"mbs=1", "vpp=2"} <= set(knobs)
    assert at.desk.get_history(1) == lines[-1:]
    assert at.desk.get_history(-5) == at.desk.get_history("many") == lines  # type: ignore[arg-type]


def test_get_best_is_the_incumbent(at: Opened):
    best = at.state.best
    assert best is not None
    said = at.desk.get_best()
    assert said["trial"] == f"#{best.number}"
    assert said["tokens_per_s_per_gpu"] == round(best.score or 0, 1)
    assert said["percent_to_incumbent"] == 0.0


def test_facts_of_the_job_are_those_of_its_files(at: Opened):
    axes = at.state.axes
    assert axes is not None
    assert at.desk.get_legal_axes() == {axis.name: list(axis.values) for axis in axes.axes}
    architecture = at.desk.get_architecture()
    assert (architecture["num_layers"], architecture["seq_length"]) == (56, 8192)
    cluster = at.desk.get_cluster()
    assert (cluster["num_nodes"], cluster["gpus_per_node"]) == (4, 8)
    assert cluster["cap_gb"] == round(at.inputs.cluster.cap_gb, 1)


def test_budget_status_says_what_is_left(at: Opened):
    at.desk.evaluate_simulate({"mbs": 1})
    said = at.desk.get_budget_status()
    assert "proposals: 39 of 40" in said
    assert f"performance calls: {60 - calls_of(at)} of 60" in said
    assert f"evaluations in this round: {MOST_PER_ROUND - 1} of {MOST_PER_ROUND}" in said


def test_notes_are_kept_in_order_and_bounded(at: Opened):
    assert at.desk.note_to_scratchpad("one") == "noted"
    at.desk.note_to_scratchpad("x" * 10_000)
    at.desk.note_to_scratchpad("half a pair: \ud800")
    lines = at.desk.read_scratchpad().splitlines()
    assert lines[0] == f"round 1, {INVESTIGATOR}: one"
    assert len(lines[1]) < 1100
    assert lines[2].endswith("half a pair: ?")
    for _ in range(MOST_NOTES):
        last = at.desk.note_to_scratchpad("more")
    assert "all 20 notes" in last
    assert len(at.state.notes) >= MOST_NOTES


def test_questions_go_to_a_known_expert(at: Opened):
    assert at.desk.query_llm("why?", "moe") == "It depends."
    assert at.desk.query_llm("why?") == "It depends."
    assert "one of general" in at.desk.query_llm("why?", "fortune teller")
    assert at.questions == [("moe", "why?"), ("general", "why?")]


def test_a_spent_budget_is_the_answer_also_for_an_open_trial(tmp_path: Path):
    with opened(tmp_path, max_perf_calls=3) as at:
        left = at.desk.evaluate_memory_only({"mbs": 1, "vpp": 7})
        for vpp in (1, 2, 14):
            at.desk.evaluate_simulate({"mbs": 1, "vpp": vpp})
        assert calls_of(at) == 3
        said = at.desk.evaluate_simulate({"mbs": 1, "vpp": 7})
        assert said["trial"] == left["trial"]
        assert "max_perf_calls" in said["error"]
        assert "max_perf_calls" in at.desk.evaluate_simulate({"fp8": "hybrid", "mbs": 1})["error"]
        assert calls_of(at) == 3


def test_time_that_is_up_is_the_answer(tmp_path: Path):
    with opened(tmp_path, max_wall_clock_s=0.001) as at:
        said = at.desk.evaluate_simulate({"mbs": 1})
        assert "max_wall_clock_s" in said["error"]
        assert at.state.stop is not None


def test_once_the_turn_must_end_no_tool_answers(at: Opened):
    at.halt.error = LogError("the log is gone")
    for tool in at.desk.tools():
        needed = {"config": {}, "text": "x", "prompt": "x"}
        names = inspect.signature(tool).parameters
        with pytest.raises(LogError, match="the log is gone"):
            tool(**{name: value for name, value in needed.items() if name in names})


@pytest.mark.parametrize("name", ["dualpipe", "", "8`à", "²"])
def test_a_schedule_there_is_none_of_is_an_answer(at: Opened, name: str):
    for tool in (at.desk.evaluate_memory_only, at.desk.evaluate_simulate):
        assert "is not a schedule" in str(tool({"pp_schedule": name})["error"])
    assert at.halt.error is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=6,
)  # fmt: skip
KNOBS = st.sampled_from(["tp", "pp", "vpp", "mbs", "gbs", "fp8", "pp_schedule", "layout", "why"])


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(tool=st.sampled_from(sorted(TOOLS - {"query_llm"})), anything=JSON, knob=KNOBS)
def test_whatever_a_tool_is_given_it_answers_in_json(
    at: Opened, tool: str, anything: Any, knob: str
):
    desk: Desk = at.desk
    parameters = list(inspect.signature(getattr(desk, tool)).parameters)
    for given_value in (anything, {knob: anything}):
        arguments = [given_value] if parameters else []
        said = getattr(desk, tool)(*arguments)
        assert json.loads(canonical(said)) == said
        assert at.halt.error is None
