"""The planner: one structured answer per round, from the whole situation to candidates."""

from dataclasses import dataclass
from typing import Any

from schemas.errors import RefoldError
from schemas.search import LlmPlan
from tasks.llm.answers import reading_adapter
from tasks.llm.engine import TapedEngine, language_model, load_dspy
from tasks.llm.prompt_texts import prompt

_LONGEST = 2000


class Unreadable(RefoldError):
    """A model's answer is not of the form that was asked for."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What the planner answered. `candidates` are as sent: nothing of them is checked yet."""

    rationale: str
    hypotheses: tuple[str, ...]
    candidates: tuple[Any, ...]
    polish: str


def ask_planner(
    engine: TapedEngine, llm: LlmPlan, situation: str, guidance: str, scratchpad: str
) -> Plan:
    """One call of the planner's model.

    Raises:
        Unreadable: its answer has no such fields.
    """
    dspy = load_dspy()
    signature = dspy.Signature(
        {
            "situation": (str, dspy.InputField(desc="the search as it stands")),
            "guidance": (str, dspy.InputField(desc="what the people who run the job add")),
            "scratchpad": (str, dspy.InputField(desc="notes of earlier rounds")),
            "rationale": (str, dspy.OutputField()),
            "hypotheses": (list[str], dspy.OutputField()),
            "candidates": (list[Any], dspy.OutputField(desc="objects of knobs")),
            "polish": (str, dspy.OutputField()),
        },
        prompt("planner"),
    )
    model = language_model(engine, llm, llm.planner_model or llm.model)
    adapter = reading_adapter(dspy)
    try:
        with dspy.context(lm=model, adapter=adapter):
            answer = dspy.ChainOfThought(signature)(
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
