"""Rounds of the driver `react`: one tool call per answer, against a real endpoint; no sandbox."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from flows.desk import INVESTIGATOR
from flows.requests import ResumeRequest
from flows.tune import resume
from schemas.events import LLMCalled
from storage import EventLog
from tests.end_to_end.cutting import but_export, cut, decided
from tests.end_to_end.made_once import Uninterrupted
from tests.llm.endpoint import endpoint
from tests.llm.investigating import Investigated, Step, ends_well, investigate, investigator
from tests.llm.test_rounds import _at

pytestmark = pytest.mark.whole

STEPS: tuple[Step, ...] = (
    ("get_legal_axes", {}),
    ("evaluate_simulate", {"config": {"mbs": 1}}),
    ("evaluate_memory_only", {"config": {"mbs": 1, "vpp": 2}}),
    ("query_llm", {"prompt": "why", "expert": "moe"}),
    ("note_to_scratchpad", {"text": "mbs 1 is fine"}),
    ("finish", {}),
)
SCRIPT = investigator(*STEPS)


@pytest.fixture(scope="module")
def investigated(tmp_path_factory: pytest.TempPathFactory) -> Investigated:
    return investigate(tmp_path_factory.mktemp("react"), SCRIPT, "react")


def test_each_tool_call_of_a_turn_is_done_and_the_findings_are_kept(investigated: Investigated):
    ends_well(investigated)
    own = [t for t in investigated.state.trials.values() if t.proposed.rule == INVESTIGATOR]
    assert [trial.status for trial in own] == ["scored", "rejected"]
    notes = [note.text for note in investigated.state.notes]
    assert "mbs 1 is fine" in notes
    assert "It is so." in notes
    assert "#404" in "\n".join(notes)
    assert not investigated.steps
    assert len(investigated.prompts) == 1 + len(STEPS) + 1 + 1  # planner, expert, findings


def test_a_turn_cut_anywhere_goes_on_and_asks_nothing_twice(
    investigated: Investigated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    whole = Uninterrupted(
        investigated.request, investigated.store, investigated.run_id, investigated.records,
        investigated.state,
    )  # fmt: skip
    begun = next(n for n, r in enumerate(whole.records) if r.envelope.round == 1)
    with endpoint(SCRIPT) as server:
        monkeypatch.setattr("flows.llm_rounds.live_model", _at(server.url))
        for events in range(begun + 2, len(whole.records) - 1, 5):
            store, before = tmp_path / str(events), len(server.prompts)
            cut(whole, events, store)
            resume(ResumeRequest(run=whole.run_id, store=str(store)), stage=but_export)
            state = EventLog.open(store, whole.run_id).state()
            assert decided(state) == decided(whole.state)
            known = [r for r in whole.records[:events] if isinstance(r.event, LLMCalled)]
            assert len(server.prompts) - before == len(whole.state.calls) - len(known)
    request = whole.request.model_copy(update={"store": str(store)})
    ends_well(Investigated(request, whole.run_id, []))


WRONG: tuple[tuple[Step, str], ...] = (
    (("evaluate_simulate", {}), "missing 1 required"),
    (("evaluate_simulate", {"config": "tp=2"}), "is not of type 'object'"),
    (("evaluate_simulate", {"config": {"wings": 2}}), "wings"),
    (("evaluate_simulate", {"config": {"tp": {"type": "integer"}}}), "error"),
    (("evaluate_simulate", {"setting": {}}), "evaluate_simulate takes config"),
    (("get_best", {"self": 1, "instance": 2}), "error"),
    (("get_history", {"last": "all"}), "is not of type 'integer'"),
    (("fly", {}), "could not be read"),
    ("raw: no JSON at all", "could not be read"),
    ('raw: {"next_thought": "", "next_tool_name": "get_best", "next_tool_args": 7}', "be read"),
    (("note_to_scratchpad", {"text": "half a pair: \ud800"}), "noted"),
)


def test_whatever_is_wrong_with_a_call_comes_back_as_its_result(tmp_path: Path):
    steps = [step for step, _ in WRONG]
    run = investigate(tmp_path, investigator(*steps, ("finish", {})), "react")
    last = run.prompts[-1]
    for number, (step, words) in enumerate(WRONG):
        (seen,) = re.findall(rf"## observation_{number} ## \]\]\s+(.*)", last)
        assert words in seen, step
    text = "\n".join(run.prompts)
    assert "Traceback" not in text
    for path in (sys.prefix, str(tmp_path), "site-packages", 'File "'):
        assert path not in text, path
    assert len(run.state.rounds[1].trials) == 0
    ends_well(run)


def test_garbage_without_end_ends_the_turn(tmp_path: Path):
    run = investigate(tmp_path, investigator("raw: " + "{" * 9_000), "react")
    assert any("the investigator stopped" in note.text for note in run.state.notes)
    assert len(run.prompts) == 5
    ends_well(run)


@pytest.mark.parametrize(
    ("budget", "calls", "ends"),
    [
        ({"max_rlm_iterations": 3}, 1 + 3 + 1, "1 candidates decided"),
        ({"max_llm_tokens": 300}, 3, "max_llm_tokens"),
        ({"max_perf_calls": 3}, 4, "max_perf_calls"),
    ],
)
def test_budgets_hold_within_a_turn(tmp_path: Path, budget: dict[str, Any], calls: int, ends: str):
    settings = [{"mbs": 1}, {"mbs": 1, "vpp": 2}, {"vpp": 2}, {"fp8": "hybrid", "vpp": 2}]
    steps: list[Step] = [("evaluate_simulate", {"config": config}) for config in settings]
    if "max_rlm_iterations" in budget:
        steps = steps[:1]
    run = investigate(tmp_path, investigator(*steps), "react", **budget)
    assert ends in run.why
    assert len(run.prompts) <= calls
    assert run.state.spent.perf_calls <= run.state.spec.search.budget.max_perf_calls
    ends_well(run)


def test_a_model_that_fails_in_the_middle_of_a_turn_ends_it_with_what_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("flows.llm_tape.FIRST_WAIT_S", 0.01)
    helpful = investigator(*STEPS)

    def script(prompt: str, number: int) -> Any:
        return (500, json.dumps({})) if '"answer"' in prompt else helpful(prompt, number)

    run = investigate(tmp_path, script, "react")
    assert "ServerError" in run.why
    assert len(run.state.rounds[1].trials) == 2
    ends_well(run)
