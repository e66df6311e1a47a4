"""A real language model proposes, end to end. Downloads 0.5 GB and takes minutes: `make test-llm`.

What a model of half a billion parameters proposes is not good; that the search takes it as it
comes, keeps it, and makes every decision again without the model, is what is shown here.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from flows.llm_rounds import LLM
from storage import EventLog, State, Store
from storage import verify as verify_run
from tests.end_to_end.files import write_inputs
from tests.flows.command import command_line, environment
from tests.llm.small_model.fetch import SmallModel, fetched

MODEL = "openai/local"
CONTEXT = 8192
HERE = Path(__file__).resolve().parent


class Searched(NamedTuple):
    folder: Path
    state: State
    took_s: float

    @property
    def store(self) -> Path:
        return self.folder / "store"


@contextmanager
def served(model: SmallModel) -> Iterator[str]:
    """The address of a server of `model`, until the context ends."""
    here = HERE / "small_model"
    process = subprocess.Popen(
        [sys.executable, here / "serve.py", model.weights, str(CONTEXT), here / "plan.gbnf"],
        env={**os.environ, "PYTHONPATH": str(model.runtime), "PYTHONWARNINGS": "default"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        address = process.stdout.readline().strip()
        assert address, "the server did not start: its reason is above"
        yield address
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def refold(folder: Path, *arguments: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command_line(*arguments),
        cwd=folder,
        env=environment(REFOLD_STORE=str(folder / "store"), PYTHONWARNINGS="default"),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> Searched:
    folder = tmp_path_factory.mktemp("real_model")
    with served(fetched()) as address:
        workload, cluster = write_inputs(
            folder,
            overrides={"micro_batch_size": 1},  # the baseline fits: there is something to beat
            agent={"llm": {"base_url": address, "timeout": 1200.0, "max_tokens": 700}},
            optimization={
                "budget": {
                    "seed_budget": 6, "max_rounds": 3, "max_proposals": 16, "max_perf_calls": 24,
                },
            },
        )  # fmt: skip
        begun = time.monotonic()
        done = refold(
            folder, "tune", "--workload", workload, "--target-cluster", cluster, "--llm", MODEL,
            "--gemm-backend", "tile", "--out-dir", folder / "out", "--no-prefect",
        )  # fmt: skip
        took_s = time.monotonic() - begun
    assert done.returncode == 0, done.stderr
    run_id = Store.at(folder / "store").find_run("latest")
    return Searched(folder, EventLog.open(folder / "store", run_id).state(), took_s)


def test_the_search_ends_and_every_event_is_whole(searched: Searched):
    state = searched.state
    assert state.finished is not None
    assert verify_run(Store.at(searched.store), state.run_id).ok
    assert state.conservation.in_flight == 0
    assert state.calls
    for call in state.calls:
        assert (call.event.failure, call.event.model) == (None, MODEL)
        assert call.event.input_tokens
        assert call.event.output_tokens


def test_it_is_replayed_without_the_model(searched: Searched):
    done = refold(searched.folder, "replay", "latest", "--verify", "--json")
    report = json.loads(done.stdout)
    assert report["identical"], report["different"]
    assert report["by_type"]["LLMCalled"] == len(searched.state.calls)


def test_the_answer_is_not_worse_than_the_seeds(searched: Searched):
    state = searched.state
    seeds = [t.score for t in state.trials.values() if t.round == 0 and t.score is not None]
    assert state.best is not None
    assert state.best.score is not None
    assert state.best.score >= max(seeds)


def test_its_recorded_answers_can_be_scored(searched: Searched):
    done = refold(searched.folder, "prompt-eval", "latest", "-k", "8", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    [prompt] = report["prompts"]
    assert prompt["decisions"] == len(searched.state.calls)
    print(measured(searched, prompt))
    print(refold(searched.folder, "prompt-eval", "latest", "-k", "8").stdout)


def measured(searched: Searched, prompt: dict[str, Any]) -> str:
    """What is to be known of the run, for a person."""
    state = searched.state
    proposed = [trial for trial in state.trials.values() if trial.proposed.rule == LLM]
    lines = [
        f"tune took {searched.took_s:.0f} s, ended: {state.finished and state.finished.why}",
        *(
            f"call {call.event.call}: {call.event.input_tokens} tokens sent,"
            f" {call.event.output_tokens} received, {call.event.latency_ms / 1000:.1f} s"
            for call in state.calls
        ),
        *(
            f"trial {trial.number}: {trial.proposed.tag}: {trial.status}"
            f" {trial.rejected.code if trial.rejected else round(trial.score or 0)}"
            for trial in proposed
        ),
        *(
            f"note of round {note.round}, {note.author}: {note.text[:200]}"
            for note in state.notes
            if note.round
        ),
        json.dumps(prompt),
    ]
    return "\n".join(lines)
