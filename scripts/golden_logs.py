"""Writes the logs that tests/storage/test_golden.py reads: what this version of the event schema
looks like on disk, for every later Refold to read.

    PYTHONPATH=. python scripts/golden_logs.py

It refuses to overwrite: a log that was written under a version stays as it was written. Run it once
when `SCHEMA_VERSION` is raised; a version that was never released may be removed and written again.
"""

import json
import shutil
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from flows.forking import fork
from flows.interrupts import Interrupted
from flows.opening import inputs_of_run
from flows.requests import ForkRequest, ResumeRequest, TuneRequest
from flows.tune import resume, tune
from schemas.errors import RefoldError
from schemas.events import (
    SCHEMA_VERSION,
    CodeRan,
    Event,
    LLMCalled,
    RoundFinished,
    RoundStarted,
    RunFinished,
    RunResumed,
    ToolCalled,
    TrialInvalidated,
    TrialProposed,
    TrialScored,
)
from schemas.night import (
    Failure,
    Moved,
    NightAbandoned,
    NightFinished,
    NightStarted,
    TargetDecided,
    TargetTaken,
)
from schemas.targets import Target
from schemas.trial import TrialConfig
from storage import Entry, EventLog, State, Store
from storage.codec import event_types
from storage.layout import events_prefix
from storage.nights import Night, night_id, read_night
from tasks.nightly.standing import recipe_of

GOLDEN = Path(__file__).parents[1] / "tests" / "storage" / "golden"


def main() -> None:
    """Writes v<SCHEMA_VERSION>, and what its logs come to."""
    folder = GOLDEN / f"v{SCHEMA_VERSION}"
    if folder.exists():
        sys.exit(f"{folder} is there: what was written under a version is not written again")
    with tempfile.TemporaryDirectory() as inputs:
        workload, cluster = _input_files(Path(inputs))
        request = TuneRequest(
            workload=workload,
            target_cluster=cluster,
            store=str(folder),
            out_dir=Path(inputs) / "out",
            mode="dry",
            gemm_backend="tile",
            seed_budget=5,
        )
        parent = tune(request, stage=_no_export)
        _llm_round(folder, parent)
        _fork(folder, parent, settings=("search.budget.max_perf_calls=30",), at_round=1)
        _fork(folder, parent, settings=("cluster.memory_safety_margin=0.2",))
        _fork(folder, parent, settings=("search.budget.max_wall_clock_s=0",), at_event=5)
        _killed_and_resumed(request)
        _nights(folder, parent)
    for beside in ("leases", "evaluations", "nights/leases"):
        shutil.rmtree(folder / beside)
    write_new(folder / "expected.json", expectations(folder))
    write_new(folder / "shapes.json", shapes())
    print(f"{folder}: {len(Store.at(folder).run_ids())} runs")


def expectations(folder: Path) -> dict[str, Any]:
    """What each run and each night of a store comes to."""
    store = Store.at(folder)
    return {run: outcome(EventLog.open(store, run).state()) for run in store.run_ids()} | {
        night: night_outcome(read_night(store, night)) for night in store.nights.run_ids()
    }


def night_outcome(night: Night) -> dict[str, Any]:
    """The same of a night."""
    return {
        "head": [night.head_seq, night.head_hash],
        "taken": {name: taken.run for name, taken in night.taken.items()},
        "decided": {
            name: [decided.outcome, decided.after and decided.after.trial_id]
            for name, decided in night.decided.items()
        },
        "finished": night.finished is not None,
        "abandoned": night.abandoned is not None,
    }


def outcome(state: State) -> dict[str, Any]:
    """What a test compares: nothing that a later Refold may add to."""
    best = state.best
    return {
        "head": [state.head_seq, state.head_hash],
        "status": state.status,
        "why": state.finished.why if state.finished else None,
        "best": [best.number, best.proposed.trial_id, best.score] if best else None,
        "conservation": list(state.conservation),
        "spent": [state.spent.seeds, state.spent.proposals, state.spent.perf_calls],
        "llm": [state.spent.llm_calls, state.spent.llm_tokens, state.spent.llm_cost_usd],
        "forks": [[fork.event.parent, fork.seq, fork.event.inherits] for fork in state.forks],
        "invalidated": [n for n, trial in state.trials.items() if trial.invalidated],
        "resumed": len(state.resumed),
        "recovered": [name for event in state.recoveries for name in event.discarded],
    }


def shapes() -> dict[str, dict[str, list[str]]]:
    """Every event, and every model within one, with its fields: a required one as `name`, one that
    may be left out as `name?`."""
    found: dict[str, dict[str, list[str]]] = {}
    for name, model in event_types().items():
        schema = model.model_json_schema()
        parts = {name: schema, **schema.get("$defs", {})}
        found[name] = {
            part: sorted(
                field if field in body.get("required", ()) else f"{field}?"
                for field in body.get("properties", {})
            )
            for part, body in sorted(parts.items())
        }
    return found


def write_new(path: Path, value: Any) -> None:
    """`value` as JSON, in a file that is not there yet."""
    with path.open("x") as file:
        json.dump(value, file, indent=1)
        file.write("\n")


def _no_export(name: str, step: Any, *args: Any) -> Any:
    return None if name == "export" else step(*args)


def _input_files(folder: Path) -> tuple[Path, Path]:
    overrides = {
        "micro_batch_size": 2,
        "global_batch_size": 64,
        "seq_length": 4096,
        "expert_model_parallel_size": 8,
    }
    trainer = {"model": "mixtral_8x7B_v0.1.yaml", "overrides": overrides}
    workload, cluster = folder / "workload.yaml", folder / "cluster.yaml"
    workload.write_text(yaml.safe_dump({"modules": {"pre_trainer": trainer}}))
    target = {"name": "pod", "num_nodes": 1, "gpu_arch": "mi355x"}
    budget = {"max_perf_calls": 3}
    sections = {"hbm_capacity_gb": 288.0, "budget": budget}
    cluster.write_text(yaml.safe_dump({"target_cluster": target, "optimization": sections}))
    return workload, cluster


def _fork(folder: Path, parent: str, **changes: Any) -> str:
    out_dir = Path(tempfile.gettempdir()) / f"golden-{parent}"
    request = ForkRequest(run=parent, store=str(folder), out_dir=out_dir, **changes)
    return fork(request, stage=_no_export)


def _llm_round(folder: Path, run_id: str) -> None:
    """A round whose one candidate a model proposed, after a call that failed; then its score is
    found wrong."""
    inputs = inputs_of_run(Store.at(folder), run_id)
    state = EventLog.open(folder, run_id).state()
    baseline, best = state.trials[0].proposed.config, state.best
    assert best is not None
    trial = baseline.model_copy(update={"mbs": 4})
    evaluation = inputs.evaluator().score(trial)
    with EventLog.open(folder, run_id, writing=True) as log:
        asked, answered = log.put_blob(b"what to try next?"), log.put_blob(b"mbs 4")
        call = {
            "role": "planner",
            "model": "openai/some-model",
            "prompt_hash": "0123456789abcdef",
            "request_key": "fedcba9876543210",
            "request_blob": asked,
            "latency_ms": 812.5,
        }
        failed = LLMCalled(call=0, answer_blob=None, failure="timed out", **call)
        answer = LLMCalled(
            call=1, answer_blob=answered, input_tokens=812, output_tokens=9, cost_usd=0.0021, **call
        )
        proposal = TrialProposed(
            trial_id=trial.trial_id,
            requested=TrialConfig(mbs=4),
            config=trial,
            rule="llm",
            why="a larger microbatch",
            tag="mbs4",
            call=1,
        )
        score = TrialScored(trial_id=trial.trial_id, evaluation=evaluation)
        number = len(state.trials)
        end = RoundFinished(
            why="the proposer had no more to propose",
            incumbent=best.number,
            incumbent_tokens_per_s_per_gpu=best.score,
        )
        recipe = RunFinished(
            why="the plan is done", recipe_trial=best.number, recipe_trial_id=best.proposed.trial_id
        )
        wrong = TrialInvalidated(
            trial_id=trial.trial_id,
            why="entered by hand",
            author="golden_logs",
            incumbent=best.number,
            incumbent_trial_id=best.proposed.trial_id,
            incumbent_tokens_per_s_per_gpu=best.score,
        )
        asked_tool = ToolCalled(tool="evaluate_simulate", arguments={"config": {"mbs": 4}})
        step = CodeRan(code_sha256="0" * 64, kind="output", text="#13 fits")
        budget = state.spec.search.budget
        resumed = RunResumed(refold_version="0", projection_version="0", reopened=True)
        for entry in (
            Entry(resumed),
            Entry(RoundStarted(proposer="llm", planned=1, budget=budget), 1),
            Entry(failed, 1),
            Entry(answer, 1),
            Entry(asked_tool, 1),
            Entry(proposal, 1, number),
            Entry(score, 1, number),
            Entry(step, 1),
            Entry(end, 1),
            Entry(recipe),
            Entry(wrong, None, number),
        ):
            log.append([entry], log.next_seq)
        log.compact()


def _killed_and_resumed(request: TuneRequest) -> None:
    """A run that was interrupted, whose next writer left half a segment, and that then finished."""
    seen = 0

    def interrupt(*_: object) -> None:
        nonlocal seen
        seen += 1
        if seen == 6:
            raise KeyboardInterrupt

    try:
        tune(request, stage=_no_export, listeners=[interrupt])
    except Interrupted as stopped:
        run_id = stopped.run_id
    else:
        raise RefoldError("the run was not interrupted")
    folder = Path(str(request.store))
    events = folder / events_prefix(run_id)
    next_seq = len(EventLog.open(folder, run_id).read())
    (events / f"{next_seq:012d}.parquet").write_bytes(b"PAR1 half a segm")
    resume(ResumeRequest(run=run_id, store=str(folder)), stage=_no_export)


def _nights(folder: Path, run_id: str) -> None:
    """One that was cut off, and one that searched, kept and failed."""
    store = Store.at(folder)
    state = EventLog.open(store, run_id).state()
    found = recipe_of(state)
    targets = tuple(
        Target(name=name, workload=Path("workload.yaml"), target_cluster=Path("cluster.yaml"))
        for name in ("searched", "kept", "failed")
    )
    first, second = (datetime(2026, 1, day, 2, tzinfo=UTC) for day in (1, 2))
    started = NightStarted(
        name="lab",
        slot=first,
        targets=targets,
        spec="0123456789abcdef",
        refold_version="0",
        projection_version="0",
    )
    failure = Failure(error="WorkloadError", message="workload.yaml: no such file")
    moved = Moved(path="stack.hipblaslt", before="0.10", after="0.12")
    end = NightFinished(outcomes={"failed": 1, "kept": 1, "re-tuned": 1})
    nights: dict[datetime, tuple[Event, ...]] = {
        first: (started, NightAbandoned(slot=second)),
        second: (
            started.model_copy(update={"slot": second, "missed": 1}),
            TargetDecided(target="kept", outcome="kept", before=found, again=found, after=found),
            TargetDecided(target="failed", outcome="failed", failure=failure),
            TargetTaken(target="searched", run=run_id, parent=None),
            TargetDecided(
                target="searched",
                outcome="re-tuned",
                run=run_id,
                before=found,
                after=found,
                moved=(moved,),
            ),
            end,
        ),
    }
    for slot, events in nights.items():
        with EventLog.create(store.nights, night_id("spec", slot)) as log:
            for event in events:
                log.append([Entry(event)], log.next_seq)
            log.anchor_head()


if __name__ == "__main__":
    main()
