"""The planner: one structured answer per round, from the whole situation to candidates."""

from dataclasses import dataclass
from typing import Any

from schemas.errors import RefoldError
from schemas.search import LlmPlan
from tasks.llm.answers import reading_adapter
from tasks.llm.engine import TapedEngine, language_model, load_dspy
from tasks.llm.prompt_texts import prompt

PLANNER = "planner"
"""The role, in the record of a call."""
_LONGEST = 2000
_CANDIDATES = 'objects: [{"<knob>": <value>, ..., "why": "<reason>"}, ...]'
"""The form alone: a small model has none without, and would propose an example as it stands."""


class Unreadable(RefoldError):
    """A model's answer is not of the form that was asked for."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the planner answered. `candidates` are as sent: nothing of them is checked yet."""

    rationale: str
    hypotheses: tuple[str, ...]
    candidates: tuple[Any, ...]
    polish: str


def planner_module(instructions: str) -> Any:
    """The planner as a dspy module: from `situation`, `guidance` and `scratchpad` to a `Plan`'s
    fields, told `instructions`.

    Raises:
        EnvironmentMissing: dspy is not installed.
    """
    dspy = load_dspy()
    signature = dspy.Signature(
        {
            "situation": (str, dspy.InputField(desc="the search as it stands")),
            "guidance": (str, dspy.InputField(desc="what the people who run the job add")),
            "scratchpad": (str, dspy.InputField(desc="notes of earlier rounds")),
            "rationale": (str, dspy.OutputField()),
            "hypotheses": (list[str], dspy.OutputField()),
            "candidates": (list[Any], dspy.OutputField(desc=_CANDIDATES)),
            "polish": (str, dspy.OutputField()),
        },
        instructions,
    )
    return dspy.ChainOfThought(signature)


def speaking_as(engine: TapedEngine, llm: LlmPlan) -> Any:
    """The context in which dspy's modules ask the planner's model behind `engine`."""
    dspy = load_dspy()
    model = language_model(engine, llm, llm.planner_model or llm.model)
    return dspy.context(lm=model, adapter=reading_adapter(dspy))


def ask_planner(
    engine: TapedEngine,
    llm: LlmPlan,
    situation: str,
    guidance: str,
    scratchpad: str,
    instructions: str | None = None,
) -> Plan:
    """One call of the planner's model. `instructions` stand for the shipped ones.

    Raises:
        Unreadable: its answer has no such fields.
    """
    dspy = load_dspy()
    try:
        with speaking_as(engine, llm):
            answer = planner_module(instructions or prompt(PLANNER))(
                situation=situation, guidance=guidance, scratchpad=scratchpad
            )
    except Exception as error:
        engine.halt.check()
        if not isinstance(error, dspy.utils.exceptions.AdapterParseError):
            raise
        raise Unreadable("the planner's answer has not the fields that were asked for") from error
    return Plan(
        rationale=str(answer.rationale)[:_LONGEST],
        hypotheses=tuple(str(line)[:300] for line in (answer.hypotheses or ())[:5]),
        candidates=tuple(answer.candidates or ()),
        polish=str(answer.polish)[:_LONGEST],
    )
