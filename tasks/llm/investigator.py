"""The investigator: a model with tools, that finds out by evaluating.

Two drivers on one belt: `rlm`, a recursive language model that writes Python in a sandbox, and
`react`, one tool call per answer. What a model says it found is names of trials; their numbers are
the tools' own, from the record.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.search import LlmPlan
from tasks.llm.answers import UNREADABLE, patient_adapter, reading_adapter
from tasks.llm.engine import TapedEngine, language_model, load_dspy
from tasks.llm.halt import Halt
from tasks.llm.plain import plain_text
from tasks.llm.planner import Unreadable
from tasks.llm.prompt_texts import prompt
from tasks.llm.taped_code import CodeTape, Interpreters

MOST_QUESTIONS = 20
"""Calls of `llm_query` in a turn."""
_LONGEST = 4000
_LONGEST_ERROR = 500
Tools = Sequence[Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Findings:
    """What the investigator handed back, as it said it."""

    trial_ids: tuple[str, ...]
    summary: str
    next_steps: str


@dataclass(frozen=True, slots=True)
class Belt:
    """What an investigator works with.

    Attributes:
        engine: answers it.
        expert: answers the questions its code puts to a model of its own.
        tools: what it may ask.
        code: the record of what its code does.
    """

    engine: TapedEngine
    expert: TapedEngine
    tools: Tools
    code: CodeTape


def investigate(
    belt: Belt, llm: LlmPlan, situation: str, plan: str, guidance: str, *, max_iterations: int
) -> Findings:
    """One turn of the investigator's model.

    Raises:
        Unreadable: it ended without an answer of the form that was asked for.
        EnvironmentMissing: the driver takes a sandbox, and there is none.
    """
    dspy = load_dspy()
    halt = belt.engine.halt
    signature = dspy.Signature(
        {
            "situation": (str, dspy.InputField(desc="the search as it stands")),
            "plan": (str, dspy.InputField(desc="the planner's rationale and candidates")),
            "guidance": (str, dspy.InputField(desc="what the people who run the job add")),
            "trial_ids": (list[str], dspy.OutputField()),
            "summary": (str, dspy.OutputField()),
            "next_steps": (str, dspy.OutputField()),
        },
        prompt("investigator"),
    )
    driver = _react if llm.driver == "react" else _rlm
    module = driver(dspy, signature, belt, llm, max(1, max_iterations))
    model = language_model(belt.engine, llm, llm.model)
    try:
        with dspy.context(lm=model, adapter=patient_adapter(dspy)):
            answer = module(situation=situation, plan=plan, guidance=guidance)
    except Exception as error:
        halt.check()
        if isinstance(error, dspy.utils.exceptions.DSPyError | dspy.CodeInterpreterError):
            raise Unreadable(f"the investigator stopped: {type(error).__name__}") from error
        raise
    halt.check()
    return Findings(
        trial_ids=tuple(plain_text(str(name))[:40] for name in (answer.trial_ids or ())[:25]),
        summary=plain_text(str(answer.summary or ""))[:_LONGEST],
        next_steps=plain_text(str(answer.next_steps or ""))[:_LONGEST],
    )


def _rlm(dspy: Any, signature: Any, belt: Belt, llm: LlmPlan, max_iterations: int) -> Any:
    return dspy.RLM(
        signature,
        max_iters=max_iterations,
        max_llm_calls=MOST_QUESTIONS,
        tools=[_checked(dspy, tool, belt.engine.halt) for tool in belt.tools],
        sub_lm=language_model(belt.expert, llm, llm.model),
        interpreter_factory=Interpreters(belt.code, belt.engine.halt),
    )


def _react(dspy: Any, signature: Any, belt: Belt, llm: LlmPlan, max_iterations: int) -> Any:  # noqa: ARG001
    tools = [_checked(dspy, tool, belt.engine.halt) for tool in belt.tools]
    module = dspy.ReAct(signature, tools=tools, max_iters=max_iterations)
    module.tools[UNREADABLE] = lambda expected: {"error": expected}
    return module


def _checked(dspy: Any, tool: Callable[..., Any], halt: Halt) -> Any:
    """dspy's view of a tool, whose every failure is an answer: ReAct would show a traceback."""

    class Checked(dspy.Tool):  # type: ignore[misc]
        def __call__(self, /, **kwargs: Any) -> Any:
            try:
                return super().__call__(**kwargs)
            except Exception as error:  # noqa: BLE001 - whatever dspy finds wrong with arguments
                halt.check()
                expected = ", ".join(self.args) or "nothing"
                words = f"{self.name} takes {expected}: {error}"
                return {"error": plain_text(words)[:_LONGEST_ERROR]}

    # As Python 3.13 keeps docstrings, and 3.11 does not: prompts are the same on both.
    return Checked(tool, desc=" ".join((inspect.getdoc(tool) or "").split()))


def ask_expert(engine: TapedEngine, llm: LlmPlan, expert: str, question: str) -> str:
    """One question to a fresh model."""
    dspy = load_dspy()
    signature = dspy.Signature("field, question -> answer", prompt("expert"))
    model = language_model(engine, llm, llm.model)
    try:
        with dspy.context(lm=model, adapter=reading_adapter(dspy)):
            return str(dspy.Predict(signature)(field=expert, question=question).answer)[:_LONGEST]
    except dspy.utils.exceptions.DSPyError:
        engine.halt.check()
        return "(no readable answer)"
