"""How a step of a search is run: here, or by an orchestrator that shows and times it."""

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

Returned = TypeVar("Returned")


class Stage(Protocol):
    """Runs `step(*args)` under `name`. A step that is a generator is handed on as one."""

    def __call__(self, name: str, step: Callable[..., Returned], *args: Any) -> Returned:
        """What the step returned."""
        ...


def in_process(name: str, step: Callable[..., Returned], *args: Any) -> Returned:  # noqa: ARG001
    """The plain call."""
    return step(*args)
