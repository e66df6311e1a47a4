"""Runs whose investigator is a script: what it answers depends on its prompt alone, not on when."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from flows.replaying import ReplayReport, verify_replay
from flows.requests import TuneRequest
from flows.tune import tune
from schemas.events import CodeRan
from storage import EventLog, State, Store
from storage.reading import Record
from tasks.llm.jail import why_not_jailed
from tests.end_to_end.cutting import but_export
from tests.end_to_end.files import write_inputs
from tests.llm.endpoint import Endpoint, Script, endpoint

MODEL = "openai/scripted"
needs_a_jail = pytest.mark.skipif(
    why_not_jailed() is not None, reason=f"no sandbox here: {why_not_jailed()}"
)

Step = str | tuple[str, Mapping[str, Any]]
"""Of `rlm` the code, of `react` a tool and its arguments; "raw: …" is sent as it is."""
DONE = 'SUBMIT(trial_ids=[], summary="Nothing.", next_steps="Nothing.")'
FOUND: Mapping[str, Any] = {
    "reasoning": "", "trial_ids": ["#1", "#404"], "summary": "It is so.", "next_steps": "More.",
}  # fmt: skip


def investigator(
    *steps: Step, found: Mapping[str, Any] = FOUND, expert: Callable[[str], str] | None = None
) -> Script:
    """A planner with one candidate, and an investigator that takes `steps`, then the last again."""

    def script(prompt: str, number: int) -> str:
        if "Python REPL environment" in prompt:
            taken = int(re.findall(r"## iteration ## \]\]\s+(\d+)/\d+", prompt)[-1]) - 1
            return _said(steps[min(taken, len(steps) - 1)])
        if "next_tool_name" in prompt:
            taken = len(set(re.findall(r"## observation_(\d+) ## ", prompt)))
            return _said(steps[min(taken, len(steps) - 1)])
        if "hypotheses" in prompt:
            words = {"reasoning": "", "rationale": "r", "hypotheses": [], "polish": "p"}
            return json.dumps({**words, "candidates": [{"mbs": 1}]})
        if "trial_ids" in prompt:
            return json.dumps(found)
        return expert(prompt) if expert else json.dumps({"answer": "It depends."})

    return script


def _said(step: Step) -> str:
    if isinstance(step, tuple):
        tool, arguments = step
        return json.dumps({"next_thought": "", "next_tool_name": tool, "next_tool_args": arguments})
    if step.startswith("raw: "):
        return step.removeprefix("raw: ")
    return json.dumps({"reasoning": "", "code": f"```python\n{step}\n```"})


def asked(
    folder: Path, server: Endpoint, driver: Literal["rlm", "react", "auto"], **budget: Any
) -> TuneRequest:
    """A search with two seeds and one round of a model."""
    folder.mkdir(exist_ok=True, parents=True)
    limits = {"max_perf_calls": 60, "max_proposals": 40, "max_rounds": 1, "seed_budget": 2}
    workload, cluster = write_inputs(
        folder,
        agent={"driver": driver, "llm": {"base_url": server.url, "timeout": 5.0}},
        optimization={"budget": {**limits, **budget}},
    )
    return TuneRequest(
        workload=workload, target_cluster=cluster, out_dir=folder / "out",
        store=str(folder / "store"), mode="dry", gemm_backend="tile", llm=MODEL,
    )  # fmt: skip


class Investigated:
    """A run that ended, and what its models were asked."""

    def __init__(self, request: TuneRequest, run_id: str, prompts: Sequence[str]) -> None:
        self.request, self.run_id, self.prompts = request, run_id, prompts
        self.store = Path(str(request.store))
        self.log = EventLog.open(self.store, run_id)
        self.records: tuple[Record, ...] = tuple(self.log.iterate())
        self.state: State = self.log.state()

    @property
    def steps(self) -> list[CodeRan]:
        """How each step of the model's code ended."""
        return [record.event for record in self.records if isinstance(record.event, CodeRan)]

    @property
    def why(self) -> str:
        """Why the round of the model ended."""
        finished = self.state.rounds[-1].finished
        assert finished is not None
        return finished.why

    def replay(self) -> ReplayReport:
        """Every decision made again."""
        return verify_replay(Store.at(self.store), self.run_id)


def investigate(
    folder: Path,
    script: Script,
    driver: Literal["rlm", "react", "auto"] = "rlm",
    *,
    export: bool = False,
    **budget: Any,
) -> Investigated:
    """A run against `script`, to its end."""
    with endpoint(script) as server:
        request = asked(folder, server, driver, **budget)
        run_id = tune(request) if export else tune(request, stage=but_export)
        return Investigated(request, run_id, list(server.prompts))


def ends_well(run: Investigated) -> None:
    """The best of the seeds stands, the log is intact, and every decision is made again."""
    assert run.state.finished is not None
    assert run.state.best is not None
    assert run.state.finished.recipe_trial is not None
    assert not run.state.in_flight
    report = run.replay()
    assert report.identical, report.different
    assert report.finished
