"""Planner prompts and models scored on recorded runs, against a real server where one is asked."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from flows.forking import fork
from flows.opening import inputs_of_spec
from flows.prompt_evaluation import PromptEvalRequest, evaluate_prompts
from flows.requests import ForkRequest
from flows.tune import tune
from storage import EventLog, State
from tasks.llm.decisions import planner_decisions
from tasks.llm.prompt_texts import prompt_hash, text_hash
from tasks.llm.situation import situation
from tasks.memory_filter import DOES_NOT_FIT, IMPLIED_OOM
from tests.end_to_end.cutting import but_export
from tests.flows.inline import refold_inline
from tests.llm import tuner
from tests.llm.endpoint import Endpoint, endpoint
from tests.llm.test_rounds import KEY, MODEL, _at, asked

pytestmark = pytest.mark.whole

Capture = pytest.CaptureFixture[str]
ALL = 8
"""Proposals of one answer of the scripted tuner."""


class Recorded(NamedTuple):
    store: Path
    planned: str
    """A run whose rounds a competent planner filled."""
    seeds: str
    """A run of the same job that asked nobody."""

    def state(self, run_id: str) -> State:
        return EventLog.open(self.store, run_id).state()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    folder = tmp_path_factory.mktemp("recorded")
    with endpoint(tuner.tune) as server:
        request = asked(folder, server, max_rounds=2)
        planned = tune(request, stage=but_export)
        seeds = tune(request.model_copy(update={"seed_only": True}), stage=but_export)
        # The same signature, and another question: made-up numbers stand for no real ones.
        tune(request.model_copy(update={"seed_only": True, "mode": "dry"}), stage=but_export)
    return Recorded(folder / "store", planned, seeds)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[[Endpoint], Endpoint]:
    """Starts a server and tells LiteLLM where it is, by the environment."""

    def tell(server: Endpoint) -> Endpoint:
        monkeypatch.setenv("OPENAI_API_BASE", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        return server

    return tell


def fingerprint(folder: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def answering(*candidates: Any) -> str:
    return json.dumps(
        {
            "reasoning": "", "rationale": "try", "hypotheses": [], "polish": "",
            "candidates": list(candidates),
        }
    )  # fmt: skip


def test_recorded_answers_are_scored_as_their_trials_ended_and_nobody_is_asked(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delattr("flows.prompt_evaluation.live_model")
    before = fingerprint(recorded.store)
    report = evaluate_prompts(
        PromptEvalRequest(runs=(recorded.planned,), store=str(recorded.store), proposals=ALL)
    )
    state = recorded.state(recorded.planned)
    best = state.best
    assert best is not None
    assert len(report.decisions) == len(state.calls) >= 2
    for decision, call in zip(report.decisions, state.calls, strict=True):
        trials = [t for t in state.trials.values() if t.proposed.call == call.event.call]
        assert decision.proposals == ALL
        may_run = [
            t for t in trials
            if t.rejected is None or t.rejected.code in (DOES_NOT_FIT, IMPLIED_OOM)
        ]  # fmt: skip
        assert decision.valid - decision.duplicates == len(may_run)
        assert decision.proposals - decision.duplicates == len(trials)
        scores = [t.score for t in trials if t.score is not None]
        assert decision.fitting == len(scores)
        assert decision.regret_of_proposals == pytest.approx(1 - max(scores) / best.score)
        assert decision.prompt == prompt_hash("planner")
    assert report.decisions[-1].regret_after == 0
    assert report.decisions[0].regret_before is not None
    assert report.decisions[0].regret_before > 0
    [total] = report.prompts
    assert (total.runs, total.decisions, total.unreadable) == (1, len(state.calls), 0)
    assert fingerprint(recorded.store) == before


def test_a_planner_is_shown_again_what_it_was_shown(recorded: Recorded):
    log = EventLog.open(recorded.store, recorded.planned)
    decisions = planner_decisions(recorded.planned, log.iterate())
    inputs = inputs_of_spec(log, log.state().spec)
    for decision in decisions:
        assert decision.call is not None
        shown = situation(decision.state, inputs.workload, inputs.cluster)
        request = json.loads(log.get_blob(decision.call.request_blob))
        assert json.dumps(shown)[1:-1] in json.dumps(request)


def test_of_more_proposals_regret_is_never_greater(recorded: Recorded):
    regrets = [
        evaluate_prompts(
            PromptEvalRequest(runs=(recorded.planned,), store=str(recorded.store), proposals=k)
        ).prompts[0].mean_regret_of_proposals
        for k in (1, 3, ALL)
    ]  # fmt: skip
    assert None not in regrets
    assert regrets == sorted(regrets, reverse=True)  # type: ignore[type-var]


def test_a_model_is_asked_where_the_seeds_end_and_every_proposal_gets_its_verdict(
    recorded: Recorded, told: Any
):
    sent = [{"tp": 3}, {}, {"mbs": 16}, "fast, please", {"mbs": 1}, {"mbs": 1, "why": "again"}]
    sent += [{"pp": 2, "mbs": 1, "fp8": "hybrid"}, {"tp": 3, "why": "again, and still illegal"}]
    before = fingerprint(recorded.store)
    with endpoint(lambda prompt, number: answering(*sent)) as server:
        told(server)
        report = evaluate_prompts(
            PromptEvalRequest(
                runs=(recorded.seeds,), store=str(recorded.store), llm=MODEL, proposals=8
            )
        )
        assert len(server.prompts) == 1
        assert "TRIALS" in server.prompts[0]
    [decision] = report.decisions
    best = recorded.state(recorded.planned).best
    assert best is not None
    assert decision.best_known_tokens_per_s_per_gpu == best.score  # of another run, not the dry one
    assert decision.proposals == 8
    said = "\n".join(decision.feedback)
    for words in ("tp=3", "is trial 0", "mbs=16: does not fit, ", "fast, please", "best known 4,"):
        assert words in said, said
    assert decision.valid == 5
    assert decision.answers == "asked"
    tried = {t.proposed.config.mbs for t in recorded.state(recorded.seeds).trials.values()}
    assert decision.duplicates == 3 + (1 in tried)
    assert decision.fitting >= 1
    assert decision.regret_of_proposals is not None
    assert 0 < decision.regret_of_proposals < 1
    assert fingerprint(recorded.store) == before


def test_an_answer_that_cannot_be_read_is_counted_and_its_regret_is_whole(
    recorded: Recorded, told: Any
):
    with endpoint(lambda prompt, number: "I would rather not") as server:
        told(server)
        report = evaluate_prompts(
            PromptEvalRequest(runs=(recorded.seeds,), store=str(recorded.store), llm=MODEL)
        )
    [total] = report.prompts
    assert (total.unreadable, total.proposals, total.valid_share) == (1, 0, None)
    assert total.mean_regret_of_proposals == 1
    assert total.mean_regret_after == total.mean_regret_before


def test_a_prompt_that_gepa_found_is_a_file_that_scores_better(
    recorded: Recorded, told: Any, tmp_path: Path, capsys: Capture
):
    better = "Combine what paid. Answer with rationale, hypotheses, candidates and polish."
    reflected: list[str] = []

    def script(prompt: str, number: int) -> str:
        if "new_instruction" in prompt:
            reflected.append(prompt)
            return json.dumps({"new_instruction": better})
        if better in prompt:
            return tuner.tune(prompt, number)
        return answering({"tp": 1}, {"mbs": 16})

    file = tmp_path / "better.md"
    runs = [recorded.planned, recorded.seeds, "--store", recorded.store, "--llm", MODEL]
    before = fingerprint(recorded.store)
    with endpoint(script) as server:
        told(server)
        shipped = refold_inline(capsys, "prompt-eval", *runs, "--json")
        found = refold_inline(
            capsys, "prompt-eval", *runs, "--optimize", file, "--metric-calls", 12, "--json"
        )
        again = refold_inline(capsys, "prompt-eval", *runs, "--prompt", file, "--json")
    assert (shipped.code, found.code, again.code) == (0, 0, 0), found.err
    assert "does not fit" in reflected[0]  # the oracle's words reach whoever writes the prompt
    assert "best known 4," in reflected[0]
    assert file.read_text() == f"{better}\n"

    def asked_of(ended: Any) -> dict[str, Any]:
        [asked] = [p for p in json.loads(ended.out)["prompts"] if p["answers"] == "asked"]
        return dict(asked)

    assert asked_of(again) == asked_of(found)
    assert asked_of(again)["prompt"] == text_hash(file.read_text())
    assert asked_of(again)["mean_regret_of_proposals"] < 0.2
    assert asked_of(shipped)["mean_regret_of_proposals"] == 1
    assert fingerprint(recorded.store) == before


def test_the_table_fits_a_terminal_and_says_who_answered(recorded: Recorded, capsys: Capture):
    ended = refold_inline(
        capsys, "prompt-eval", recorded.planned, recorded.seeds, "--store", recorded.store
    )
    assert ended.code == 0
    assert "asked no planner" in ended.err
    for words in ("recorded", prompt_hash("planner"), MODEL, recorded.planned):
        assert words in ended.out
    assert max(len(line) for line in ended.out.splitlines()) <= 100


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--prompt", "p.md"], 2, "--llm MODEL"),
        ([], 2, "no planner was asked"),
        (["--llm", MODEL, "--prompt", "nowhere.md"], 2, "nowhere.md: No such file"),
        (["--optimize", "out.md"], 2, "--llm MODEL"),
        (["--llm", MODEL, "--optimize", "none/out.md"], 2, "its folder is not there"),
        (["--llm", MODEL], 3, "AuthError (HTTP 401)"),
    ],
)
def test_what_cannot_be_scored_is_said_in_a_line(
    recorded: Recorded, told: Any, capsys: Capture, options: list[str], code: int, says: str
):
    with endpoint(lambda prompt, number: (401, '{"error": {"message": "' + KEY + '"}}')) as server:
        told(server)
        ended = refold_inline(
            capsys, "prompt-eval", recorded.seeds, "--store", recorded.store, *options
        )
    assert ended.code == code
    assert says in ended.err
    assert KEY not in ended.err


def test_scores_of_another_oracle_are_passed_over(
    recorded: Recorded, capsys: Capture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("projection.signature.PROJECTION_VERSION", "another")
    ended = refold_inline(capsys, "prompt-eval", recorded.planned, "--store", recorded.store)
    assert ended.code == 2
    assert "another version of the oracle" in ended.err


def test_a_fork_answers_for_its_own_decisions(recorded: Recorded, tmp_path: Path):
    store = tmp_path / "store"
    shutil.copytree(recorded.store, store)
    with endpoint(lambda prompt, number: answering()) as server, pytest.MonkeyPatch.context() as on:
        on.setattr("flows.llm_rounds.live_model", _at(server.url))
        child = fork(
            ForkRequest(
                run=recorded.planned, store=str(store), at_round=2, llm="openai/another",
                out_dir=tmp_path / "out",
            ),
            stage=but_export,
        )  # fmt: skip
    report = evaluate_prompts(
        PromptEvalRequest(runs=(recorded.planned, child), store=str(store), proposals=ALL)
    )
    counts = {(score.model, score.decisions) for score in report.prompts}
    assert counts == {(MODEL, 2), ("openai/another", 1)}
    assert report.prompts[1].proposals == 0
