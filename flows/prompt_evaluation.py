"""Planner prompts and models scored on recorded runs: which are read, and never written.

A planner is asked again at every point at which one was asked; what it proposes is looked up in the
record, or evaluated by the oracle.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import Field

from flows.llm_access import export_keys
from flows.loose_tape import KnownAnswer, LooseTape
from flows.opening import inputs_of_spec, store_of
from flows.terminal import say
from schemas.errors import UserError
from schemas.evaluation import Evaluation
from schemas.model import FrozenModel
from schemas.search import LlmPlan, LlmSettings
from storage import EventLog, State, Store, list_runs
from tasks.inputs import Inputs
from tasks.known_evaluations import known_evaluations
from tasks.llm.choice import choose
from tasks.llm.decisions import Decision, planner_decisions
from tasks.llm.engine import Tape, TapedEngine, live_model
from tasks.llm.halt import Halt
from tasks.llm.offline_verdicts import OfflineVerdicts
from tasks.llm.planner import PLANNER, Unreadable, ask_planner
from tasks.llm.planner_scores import DEFAULT_PROPOSALS, Case, case_of
from tasks.llm.prompt_optimizer import better_prompt
from tasks.llm.prompt_report import (
    Answers,
    DecisionScore,
    PromptReport,
    decision_score,
    report_of,
)
from tasks.llm.prompt_texts import prompt, text_hash
from tasks.resolve.environment import search_dotenv
from tasks.step_keys import SOURCES

if TYPE_CHECKING:
    from dspy.lm15 import Request, Response

REPLAYED = LlmPlan(model="recorded")
"""Stands for the model where its answers are read from the record."""


class PromptEvalRequest(FrozenModel):
    """What to score: recorded answers, and those of `llm` with `prompt`."""

    runs: tuple[str, ...]
    store: str | None = None
    llm: str | None = None
    """None: nobody is asked."""
    prompt: Path | None = None
    """A file with the planner's instructions; None: the shipped ones."""
    proposals: int = Field(default=DEFAULT_PROPOSALS, ge=1)


def evaluate_prompts(request: PromptEvalRequest) -> PromptReport:
    """Scores the planner's recorded answers, and those of a model that is asked now.

    Raises:
        RunNotFound, DamagedLog: a run.
        UserError: there is nothing to score.
        EnvironmentMissing: dspy is not installed, or the model cannot be had.
    """
    if request.llm is None and request.prompt is not None:
        raise UserError("--prompt is for a model to read", hint="name one with --llm MODEL")
    cases = _cases(request)
    scores = [score for known in cases for score in _recorded_score(known)]
    if request.llm is not None:
        scores += _asked_now(_plan(request.llm), cases, instructions_of(request.prompt))
    if not scores:
        raise UserError(
            "no planner was asked in these runs", hint="--llm MODEL asks one where they end"
        )
    return report_of(scores, request.proposals)


def _asked_now(
    llm: LlmPlan, cases: Sequence["_Recorded"], instructions: str
) -> list[DecisionScore]:
    say(f"asking {llm.planner_model or llm.model} about {len(cases)} decisions")
    complete, tape, name = _live(llm), LooseTape(), text_hash(instructions)
    scores = [
        _score(known.case, tape, complete, llm, instructions, "asked", name) for known in cases
    ]
    say(f"{tape.calls} calls, {tape.tokens} tokens")
    return scores


def optimize_prompt(request: PromptEvalRequest, metric_calls: int) -> str:
    """A prompt that scores better than `request.prompt` on these runs, if GEPA finds one.

    Raises:
        UserError: no model was named.
        EnvironmentMissing: dspy is not installed, or the model cannot be had.
    """
    if request.llm is None:
        raise UserError("a prompt is improved by asking a model", hint="name one with --llm MODEL")
    llm, tape, halt = _plan(request.llm), LooseTape(), Halt()
    complete = _live(llm)
    text = better_prompt(
        TapedEngine(tape, PLANNER, halt, complete),
        TapedEngine(tape, "reflection", halt, complete),
        llm,
        [known.case for known in _cases(request)],
        instructions_of(request.prompt),
        metric_calls=metric_calls,
    )
    say(f"{tape.calls} calls, {tape.tokens} tokens")
    return text


def instructions_of(file: Path | None) -> str:
    """The planner's instructions in `file`, or the shipped ones.

    Raises:
        UserError: it cannot be read, or is empty.
    """
    if file is None:
        return prompt(PLANNER)
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise UserError(f"{file}: {reason}") from error
    if not text.strip():
        raise UserError(f"{file}: is empty")
    return text


class _Recorded(NamedTuple):
    case: Case
    answer: Callable[[], bytes] | None
    """Reads the recorded answer; None: nobody was asked."""


def _cases(request: PromptEvalRequest) -> list[_Recorded]:
    store = store_of(request.store)
    run_ids = list(dict.fromkeys(store.find_run(run) for run in request.runs))
    found = [known for run_id in run_ids for known in _cases_of(store, run_id, request.proposals)]
    if not found:
        raise UserError("none of these runs has a finished round that can be scored")
    return found


def _cases_of(store: Store, run_id: str, proposals: int) -> Iterator[_Recorded]:
    log = EventLog.open(store, run_id)
    decisions = planner_decisions(run_id, log.iterate())
    if not decisions:
        return
    end = log.state()
    inputs = inputs_of_spec(log, end.spec)
    if inputs.signature.hashes != end.spec.signature:
        say(f"warning: passes over run {run_id}: its scores are of another version of the oracle")
        return
    verdicts = OfflineVerdicts(
        inputs, end.trials.values(), known_evaluations(store.evaluations, inputs, say)
    )
    best = best_known(store, end, inputs)
    if all(decision.call is None for decision in decisions):
        say(f"run {run_id} asked no planner: a model named with --llm is, where it ends")
    for decision in decisions:
        case = case_of(decision, inputs, verdicts, best, proposals)
        yield _Recorded(case, _answer(log, decision))


def _answer(log: EventLog, decision: Decision) -> Callable[[], bytes] | None:
    call = decision.call
    if call is None or call.answer_blob is None:
        return None
    blob = call.answer_blob
    return lambda: log.get_blob(blob)


def best_known(store: Store, end: State, inputs: Inputs) -> float | None:
    """Tokens/s/GPU of the best trial of `end`'s signature in any readable run of the store, as the
    same question: same kind of oracle, memory regime and cap."""
    question = (SOURCES[inputs.search.mode], inputs.search.memory_regime, inputs.cluster.cap_gb)
    states = [end] + [
        EventLog.open(store, run.run_id).state()
        for run in list_runs(store)
        if run.signature == end.spec.signature
        and run.status != "damaged"
        and run.run_id != end.run_id
    ]
    scores = [
        trial.score
        for state in states
        for trial in state.ranked()
        if trial.score is not None
        and trial.evaluation is not None
        and _question(trial.evaluation) == question
    ]
    return max(scores, default=None)


def _question(evaluation: Evaluation) -> tuple[str, str, float]:
    return evaluation.source, evaluation.memory_regime, evaluation.cap_gb


def _recorded_score(known: _Recorded) -> Iterator[DecisionScore]:
    """The score of what was answered once, if a planner was asked."""
    call = known.case.decision.call
    if known.answer is None or call is None:
        return
    tape = KnownAnswer(json.loads(known.answer()))
    # Only how an answer is read matters: the request goes nowhere.
    score = _score(known.case, tape, None, REPLAYED, prompt(PLANNER), "recorded", call.prompt_hash)
    yield score.model_copy(update={"model": call.model})


def _score(
    case: Case,
    tape: Tape,
    complete: "Callable[[Request], Response] | None",
    llm: LlmPlan,
    instructions: str,
    answers: Answers,
    prompt_name: str,
) -> DecisionScore:
    engine = TapedEngine(tape, PLANNER, Halt(), complete)
    readable, sent = True, ()
    try:
        sent = ask_planner(
            engine, llm, case.situation, case.guidance, case.scratchpad, instructions
        ).candidates
    except Unreadable:
        readable = False
    return decision_score(
        case,
        case.score(sent),
        answers=answers,
        prompt=prompt_name,
        model=llm.planner_model or llm.model,
        readable=readable,
    )


def _plan(named: str) -> LlmPlan:
    plan = choose(LlmSettings(), search_dotenv(os.environ, Path.cwd()), named)
    assert plan is not None, "a model that is named is one"
    return plan


def _live(llm: LlmPlan) -> "Callable[[Request], Response]":
    export_keys()
    return live_model(llm, None)
