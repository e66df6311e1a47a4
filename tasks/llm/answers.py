"""How a model's answers are read: JSON, mended where that is safe, and plain values only."""

import re
from typing import Any

from tasks.llm.plain import plain

UNREADABLE = "unreadable_answer"
"""The tool that stands for an answer of a driver that could not be read; no prompt lists it."""
_LONGEST, _DEEPEST = 400_000, 200
MOST_UNREADABLE = 3
"""Answers of a turn that may be unreadable; the next one ends it."""


def reading_adapter(dspy: Any) -> Any:
    """dspy's JSON adapter, which gives plain values or `AdapterParseError` and nothing else."""

    class Reading(dspy.JSONAdapter):  # type: ignore[misc]
        def parse(self, signature: Any, completion: str) -> dict[str, Any]:
            return _read(dspy, super().parse, signature, completion)

    return Reading(use_native_function_calling=False)


def patient_adapter(dspy: Any) -> Any:
    """A `reading_adapter` for a turn of many answers: one that cannot be read is an error result.

    `dspy.RLM` gets code that raises what was expected, `dspy.ReAct` a call of `UNREADABLE`.
    """
    unreadable = 0

    class Patient(dspy.JSONAdapter):  # type: ignore[misc]
        def parse(self, signature: Any, completion: str) -> dict[str, Any]:
            nonlocal unreadable
            try:
                return _read(dspy, super().parse, signature, completion)
            except dspy.utils.exceptions.AdapterParseError:
                unreadable += 1
                instead = _instead(signature)
                if instead is None or unreadable > MOST_UNREADABLE:
                    raise
                return instead

    return Patient(use_native_function_calling=False)


def _read(dspy: Any, parse: Any, signature: Any, completion: str) -> dict[str, Any]:
    error = dspy.utils.exceptions.AdapterParseError
    if len(completion) > _LONGEST or _depth(completion) > _DEEPEST:
        raise error(adapter_name="JSONAdapter", signature=signature, lm_response="(too much)")
    try:
        fields: dict[str, Any] = plain(parse(signature, completion))
    except error:
        raise
    except Exception as other:  # of the many layers under `parse`
        raise error(
            adapter_name="JSONAdapter",
            signature=signature,
            lm_response="",
            message=type(other).__name__,
        ) from other
    return fields


def _depth(text: str) -> int:
    """How many brackets are open at most. What mends JSON takes time quadratic in that."""
    depth = deepest = 0
    for bracket in re.finditer(r"[\[{}\]]", text):
        depth += 1 if bracket.group() in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _instead(signature: Any) -> dict[str, Any] | None:
    """What a step of a driver does in place of an answer that cannot be read."""
    names = set(signature.output_fields)
    words = "the answer could not be read: it must be one JSON object with the fields "
    if names == {"reasoning", "code"}:
        return {"reasoning": "", "code": f'raise ValueError("{words}reasoning and code")'}
    if "next_tool_name" in names:
        expected = f"{words}next_thought, next_tool_name (a tool's name) and next_tool_args"
        return {
            "next_thought": "",
            "next_tool_name": UNREADABLE,
            "next_tool_args": {"expected": expected},
        }
    return None
