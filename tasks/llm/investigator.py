"""The investigator: a model with tools, that finds out by evaluating.

Two drivers on one belt: `rlm`, a recursive language model that writes Python in a sandbox, and
`react`, one tool call per answer. What a model says it found is names of trials; their numbers are
the tools' own, from the record.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.search import LlmPlan
from tasks.llm.engine import TapedEngine, language_model, load_dspy
from tasks.llm.planner import Unreadable
from tasks.llm.prompt_texts import prompt

_LONGEST = 4000
Tools = Sequence[Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Findings:
    """What the investigator handed back, as it said it."""

    trial_ids: tuple[str, ...]
    summary: str
    next_steps: str


def investigate(
    engine: TapedEngine,
    expert: TapedEngine,
    llm: LlmPlan,
    tools: Tools,
    situation: str,
    plan: str,
    guidance: str,
    *,
    max_iterations: int,
) -> Findings:
    """One turn of the investigator's model.

    `expert` answers the questions its code puts to a model of its own.

    Raises:
        Unreadable: it ended without an answer of the form that was asked for.
        EnvironmentMissing: the driver takes a sandbox, and there is none.
    """
    dspy = load_dspy()
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
    module = _module(dspy, signature, expert, llm, tools, max_iterations)
    adapter = dspy.JSONAdapter(use_native_function_calling=False)
    try:
        with dspy.context(lm=language_model(engine, llm, llm.model), adapter=adapter):
            answer = module(situation=situation, plan=plan, guidance=guidance)
    except Exception as error:
        engine.halt.check()
        if isinstance(error, dspy.utils.exceptions.DSPyError | dspy.CodeInterpreterError):
            raise Unreadable(f"the investigator stopped: {type(error).__name__}") from error
        raise
    engine.halt.check()
    return Findings(
        trial_ids=tuple(str(name)[:40] for name in (answer.trial_ids or ())[:25]),
        summary=str(answer.summary or "")[:_LONGEST],
        next_steps=str(answer.next_steps or "")[:_LONGEST],
    )


def _module(
    dspy: Any,
    signature: Any,
    expert: TapedEngine,
    llm: LlmPlan,
    tools: Tools,
    max_iterations: int,
) -> Any:
    if llm.driver == "react":
        return dspy.ReAct(signature, tools=list(tools), max_iters=max(1, max_iterations))
    from tasks.llm.sandbox import interpreter_factory

    return dspy.RLM(
        signature,
        max_iters=max(1, max_iterations),
        tools=list(tools),
        sub_lm=language_model(expert, llm, llm.model),
        interpreter_factory=interpreter_factory(),
    )


def ask_expert(engine: TapedEngine, llm: LlmPlan, expert: str, question: str) -> str:
    """One question to a fresh model."""
    dspy = load_dspy()
    signature = dspy.Signature("field, question -> answer", prompt("expert"))
    adapter = dspy.JSONAdapter(use_native_function_calling=False)
    try:
        with dspy.context(lm=language_model(engine, llm, llm.model), adapter=adapter):
            return str(dspy.Predict(signature)(field=expert, question=question).answer)[:_LONGEST]
    except dspy.utils.exceptions.AdapterParseError:
        engine.halt.check()
        return "(no readable answer)"
