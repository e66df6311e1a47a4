"""Old events read as today's: pure functions, one per step of the payload schema, chained (P10).

An event on disk is never rewritten: it keeps its bytes, its version and its hash, and is lifted
each time it is read. A step is never changed once a log was written under it.
"""

from collections.abc import Callable
from typing import Any

from schemas.events import SCHEMA_VERSION

Payload = dict[str, Any]
Upcaster = Callable[[str, Payload], Payload]
"""From an event's type and its payload under version v to its payload under v + 1."""


ADDED_IN: dict[str, int] = {
    "RunForked": 2,
    "RecipeRecalled": 2,
    "TrialInvalidated": 2,
    "LLMCalled": 2,
    "ToolCalled": 2,
    "CodeRan": 2,
    "BudgetSpent": 2,
    "NightStarted": 2,
    "TargetTaken": 2,
    "TargetDecided": 2,
    "NightFinished": 2,
    "NightAbandoned": 2,
}
"""The version that an event first had; those of version 1 left out."""


def to_version_2(event_type: str, payload: Payload) -> Payload:
    """Version 2 has language models: a proposal says which call it came from. Before, none did."""
    if event_type == "TrialProposed":
        return _with(payload, "call", None)
    return payload


UPCASTERS: dict[int, Upcaster] = {1: to_version_2}
"""The step from each older version to the next."""


def upcast(event_type: str, version: int, payload: Payload) -> Payload:
    """`payload`, written under `version`, as this Refold would have written it.

    Raises:
        ValueError: it has a field that its version did not.
    """
    for step in range(version, SCHEMA_VERSION):
        payload = UPCASTERS[step](event_type, payload)
    return payload


def _with(payload: Payload, name: str, value: Any) -> Payload:
    """`payload` with a field that came later."""
    if name in payload:
        raise ValueError(f"{name} came with a later schema version")
    return {**payload, name: value}
