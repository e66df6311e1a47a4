"""Rounds of the driver `rlm`: a model that writes code, in a real jail, against a real endpoint."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from flows.desk import INVESTIGATOR, MOST_PER_ROUND, NOT_SIMULATED
from flows.requests import ResumeRequest
from flows.tune import resume
from schemas.errors import EnvironmentMissing
from schemas.events import LLMCalled, ToolCalled
from storage import EventLog
from tests.end_to_end.cutting import but_export, cut, decided
from tests.end_to_end.made_once import Uninterrupted
from tests.llm.endpoint import endpoint
from tests.llm.investigating import (
    DONE,
    Investigated,
    ends_well,
    investigate,
    investigator,
    needs_a_jail,
)
from tests.llm.test_rounds import _at

pytestmark = [needs_a_jail, pytest.mark.whole]

LOOK = """
import random
seen = [evaluate_simulate({"mbs": 1, "fp8": fp8}) for fp8 in ("none", "hybrid")]
seen.append(evaluate_simulate(config={"mbs": 1, "vpp": 2}))
left = evaluate_memory_only({"mbs": 1, "vpp": 7})
print(left.get("fits"), [known["trial"] for known in seen], evaluate_simulate, random.random())
"""
ASK = """
print(llm_query_batched(["first", "second", "third"]), llm_query("fourth"))
print(query_llm("why", expert="moe"), note_to_scratchpad(f"{len(seen)} looked at"))
print(get_best()["trial"], evaluate_simulate({"mbs": "1"})["trial"])
"""
HAND_BACK = """
best = max((known for known in seen if "tokens_per_s_per_gpu" in known),
           key=lambda known: known["tokens_per_s_per_gpu"])
SUBMIT([best["trial"], "#404"], f"{best['trial']} is best.", "Look at fp8.")
"""


def parrot(prompt: str) -> str:
    """An expert that says what it was asked, so that answers tell the order of questions."""
    words = re.findall(r"first|second|third|fourth", prompt)
    return words[-1] if words else json.dumps({"answer": "It depends."})


SCRIPT = investigator(LOOK, ASK, HAND_BACK, expert=parrot)


@pytest.fixture(scope="module")
def investigated(tmp_path_factory: pytest.TempPathFactory) -> Investigated:
    return investigate(tmp_path_factory.mktemp("investigated"), SCRIPT, export=True)


def test_what_it_found_are_trials_of_the_tools_and_words(investigated: Investigated):
    ends_well(investigated)
    assert [step.kind for step in investigated.steps] == ["output", "output", "final"]
    own = [t for t in investigated.state.trials.values() if t.proposed.rule == INVESTIGATOR]
    assert [trial.status for trial in own] == ["scored", "scored", "scored", "rejected"]
    assert all(trial.proposed.call is not None for trial in own)
    notes = {note.author: note.text for note in investigated.state.notes}
    assert "#404" in notes["proposal check"]
    best = max(own[:3], key=lambda trial: trial.score or 0.0)
    assert notes[INVESTIGATOR] == f"best trials, by its own account: #{best.number}"
    (summary,) = Path(str(investigated.request.out_dir)).rglob("summary.json")
    (words,) = json.loads(summary.read_text())["models_words"]
    assert words == {
        "round": 1,
        "summary": f"#{best.number} is best.",
        "next_steps": "Look at fp8.",
    }
    (scratchpad,) = Path(str(investigated.request.out_dir)).rglob("scratchpad.txt")
    assert "3 looked at" in scratchpad.read_text()
    assert "Look at fp8." in scratchpad.read_text()


def test_what_was_only_asked_the_memory_of_costs_no_call_and_is_rejected_as_such(
    investigated: Investigated,
):
    last = list(investigated.state.trials.values())[-1]
    assert last.rejected is not None
    assert last.rejected.code == NOT_SIMULATED
    scored = [t for t in investigated.state.trials.values() if t.scored]
    assert investigated.state.spent.perf_calls == len(scored)


def test_a_known_configuration_is_answered_from_the_record(investigated: Investigated):
    """The second step asks for mbs 1 again, in other words."""
    calls = [r.event for r in investigated.records if isinstance(r.event, ToolCalled)]
    assert [c.tool for c in calls].count("evaluate_simulate") == 4
    own = [t for t in investigated.state.trials.values() if t.proposed.rule == INVESTIGATOR]
    assert len(own) == 4


def test_questions_in_a_batch_are_asked_one_after_the_other(investigated: Investigated):
    said = investigated.steps[1].text
    assert "['first', 'second', 'third'] fourth" in said
    roles = [call.event.role for call in investigated.state.calls]
    assert roles == ["planner", "investigator", "investigator", *["expert:code"] * 4,
                     "expert:moe", "investigator"]  # fmt: skip


def test_prompts_know_no_path_process_or_address_of_this_machine(investigated: Investigated):
    text = "\n".join(investigated.prompts)
    for word in (str(investigated.store), str(Path.home()), sys.prefix, sys.base_prefix):
        assert word not in text, word
    assert not re.search(r"0x[0-9a-f]{6}", text)
    assert "import dspy" not in text
    assert f"{os.getpid()}" not in text
    assert investigated.run_id not in text


def test_a_replay_opens_no_sandbox(investigated: Investigated, monkeypatch: pytest.MonkeyPatch):
    def refuse() -> None:
        raise AssertionError("a jail was opened")

    monkeypatch.setattr("tasks.llm.sandbox.open_jail", refuse)
    report = investigated.replay()
    assert report.identical, report.different
    assert report.by_type["CodeRan"] == 3


def taken_up(run: Investigated, events: int, store: Path, monkeypatch: Any) -> Investigated:
    """The run as if it had died after its first `events` events, resumed to its end."""
    whole = Uninterrupted(run.request, run.store, run.run_id, run.records, run.state)
    cut(whole, events, store)
    with endpoint(SCRIPT) as server:
        monkeypatch.setattr("flows.llm_rounds.live_model", _at(server.url))
        resume(ResumeRequest(run=run.run_id, store=str(store)), stage=but_export)
        request = run.request.model_copy(update={"store": str(store)})
        return Investigated(request, run.run_id, list(server.prompts))


def test_a_round_cut_anywhere_goes_on_with_its_variables_and_asks_nothing_twice(
    investigated: Investigated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    begun = next(n for n, r in enumerate(investigated.records) if r.envelope.round == 1)
    for events in range(begun + 2, len(investigated.records) - 1, 7):
        again = taken_up(investigated, events, tmp_path / str(events), monkeypatch)
        assert decided(again.state) == decided(investigated.state)
        assert again.steps == investigated.steps
        known = [r for r in investigated.records[:events] if isinstance(r.event, LLMCalled)]
        assert len(again.prompts) == len(investigated.state.calls) - len(known)
        ends_well(again)


LUCK = """
import time
print(time.time_ns(), id(seen))
print(evaluate_simulate({"mbs": 1})["trial"])
SUBMIT([], str(time.time_ns()), "")
"""


def test_luck_in_the_code_is_on_record(tmp_path: Path):
    run = investigate(tmp_path, investigator("seen = []", LUCK))
    assert run.steps[1].kind == "final"
    ends_well(run)


def test_code_that_asks_for_something_else_when_taken_up_is_stopped_and_says_so(
    investigated: Investigated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A run of code that looks at the clock, cut between a tool's call and the step's end."""
    wild = """
import time
print(note_to_scratchpad(str(time.time_ns())))
print(note_to_scratchpad(str(time.time_ns())))
"""
    script = investigator(wild, DONE)
    run = investigate(tmp_path / "whole", script)
    calls = [n for n, r in enumerate(run.records) if isinstance(r.event, ToolCalled)]
    monkeypatch.setattr(sys.modules[__name__], "SCRIPT", script)
    again = taken_up(run, calls[1] + 1, tmp_path / "store", monkeypatch)
    assert [step.kind for step in again.steps] == ["stopped", "final"]
    assert "asks for something else" in again.steps[0].text
    ends_well(again)


def test_answers_that_cannot_be_read_come_back_as_errors(tmp_path: Path):
    steps = ("raw: no JSON", "raw: " + "[" * 50_000, "raw: {}", DONE)
    run = investigate(tmp_path, investigator(*steps))
    assert [step.kind for step in run.steps] == ["error", "error", "error", "final"]
    assert "could not be read" in run.steps[0].text
    ends_well(run)


def test_a_model_that_never_answers_readably_ends_its_turn(tmp_path: Path):
    run = investigate(tmp_path, investigator("raw: \x00 \\ud800 nonsense"))
    assert len(run.steps) == 3
    assert any("the investigator stopped" in note.text for note in run.state.notes)
    ends_well(run)


MANY = """
answers = []
for mbs in (1, 4, 8):
    for vpp in (1, 2, 7, 14):
        for fp8 in ("none", "hybrid"):
            for overlap in (True, False):
                answers.append(evaluate_simulate(
                    {"mbs": mbs, "vpp": vpp, "fp8": fp8, "overlap_grad_reduce": overlap}))
print(len(answers), [a["error"] for a in answers if "error" in a][-1:], get_budget_status())
"""


@pytest.mark.parametrize(
    ("budget", "told", "ends"),
    [
        ({}, f"all {MOST_PER_ROUND} evaluations of this round are spent", "25 candidates decided"),
        ({"max_proposals": 5}, "max_proposals is spent", "5 candidates decided"),
        ({"max_perf_calls": 4}, "max_perf_calls: all 4", "max_perf_calls: all 4"),
        ({"max_llm_tokens": 200}, f"all {MOST_PER_ROUND}", "max_llm_tokens"),
        ({"max_rlm_iterations": 1}, f"all {MOST_PER_ROUND}", "25 candidates decided"),
    ],
)
def test_every_budget_holds_within_a_turn(
    tmp_path: Path, budget: dict[str, Any], told: str, ends: str
):
    run = investigate(tmp_path, investigator(MANY, DONE), **budget)
    assert told in run.steps[0].text
    assert ends in run.why
    limits = run.state.spec.search.budget
    assert run.state.spent.perf_calls <= limits.max_perf_calls
    assert run.state.spent.proposals <= min(limits.max_proposals, MOST_PER_ROUND)
    if "max_rlm_iterations" in budget:
        assert len(run.steps) == 1
        assert any(note.text == "It is so." for note in run.state.notes)
    ends_well(run)


def test_time_that_is_up_ends_the_turn(tmp_path: Path):
    """The step takes longer than the run may: the next evaluation is refused, and the turn ends."""
    slow = """
import time
time.sleep(3.5)
print(evaluate_simulate({"mbs": 1}))
"""
    run = investigate(tmp_path, investigator(slow, DONE), max_wall_clock_s=3.0)
    assert "max_wall_clock_s" in run.why
    assert len(run.state.rounds) < 2 or not run.state.rounds[1].trials
    ends_well(run)


def test_notes_and_questions_are_bounded(tmp_path: Path):
    greedy = """
print({note_to_scratchpad(str(n)) for n in range(30)})
print({query_llm(str(n)) for n in range(30)})
print(query_llm("what", expert="oracle"))
print({llm_query(str(n)) for n in range(30)})
"""
    run = investigate(tmp_path, investigator(greedy, DONE))
    said = run.steps[0].text
    for words in (
        "all 20 notes",
        "all 20 questions",
        "expert is one of",
        "LLM call limit exceeded",
    ):
        assert words in said, words
    assert len([note for note in run.state.notes if note.author == INVESTIGATOR]) == 20
    assert run.state.spent.llm_calls == 1 + 2 + 20 + 20
    ends_well(run)


def test_without_a_jail_the_driver_is_refused_by_name_before_a_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tasks.llm.choice.why_not_jailed", lambda: "bubblewrap is not installed")
    with pytest.raises(EnvironmentMissing, match=r"agent\.driver rlm: .*bubblewrap") as refused:
        investigate(tmp_path, investigator(DONE))
    assert refused.value.exit_code == 3
    assert refused.value.hint == "apt-get install bubblewrap"
    assert not (tmp_path / "store" / "runs").exists()
    automatic = investigate(tmp_path / "auto", investigator(DONE), "auto")
    assert not automatic.steps
    assert automatic.state.rounds[1].trials


def test_a_run_resumed_where_there_is_no_jail_stops_with_what_to_install(
    investigated: Investigated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    first = next(n for n, r in enumerate(investigated.records) if isinstance(r.event, ToolCalled))
    with monkeypatch.context() as patch:
        patch.setattr("tasks.llm.sandbox.why_not_jailed", lambda: "bubblewrap is not installed")
        with pytest.raises(EnvironmentMissing, match="bubblewrap"):
            taken_up(investigated, first, tmp_path / "store", patch)
    state = EventLog.open(tmp_path / "store", investigated.run_id).state()
    assert state.status == "interrupted"
    with endpoint(SCRIPT) as server:
        monkeypatch.setattr("flows.llm_rounds.live_model", _at(server.url))
        resume(
            ResumeRequest(run=investigated.run_id, store=str(tmp_path / "store")), stage=but_export
        )
    state = EventLog.open(tmp_path / "store", investigated.run_id).state()
    assert decided(state) == decided(investigated.state)
