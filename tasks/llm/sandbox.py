"""Where a model's code runs: nowhere, until there is a sandbox for it."""

from collections.abc import Callable
from typing import Any

from schemas.errors import EnvironmentMissing


def interpreter_factory() -> Callable[[], Any]:
    """Makes interpreters for `dspy.RLM`.

    Raises:
        EnvironmentMissing: this machine has no sandbox.
    """
    raise EnvironmentMissing("agent.driver rlm: there is no sandbox for a model's code here")
