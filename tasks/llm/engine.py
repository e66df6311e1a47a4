"""A dspy engine whose every call goes through a tape: answered from the record, or asked and kept.

dspy's own retries, caches and histories are off: one request is one entry of the tape.
"""

import os
import threading
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol

from schemas.errors import EnvironmentMissing
from schemas.search import LlmPlan
from tasks.llm.halt import Halt

if TYPE_CHECKING:
    from dspy.lm15 import Request, Response

Body = dict[str, Any]
"""A request or an answer as JSON."""

INSTALL = 'pip install "refold[agent]"'


class Tape(Protocol):
    """Who answers requests, and remembers them."""

    def ask(self, role: str, request: Body, live: Callable[[], Body]) -> Body:
        """The answer to `request`: the recorded one, or that of `live`, which is then recorded."""


class TapedEngine:
    """The engine of one role's model.

    Args:
        tape: see `Tape`.
        role: who asks ("planner", "investigator"), for the record.
        halt: ends the turn when the tape gives no answer: dspy wraps errors and would go on.
        inner: makes a live call; None where only recorded answers are to be had.
    """

    supports_function_calling = False
    supports_reasoning = False
    supports_response_schema = False
    supported_params: frozenset[str] = frozenset()

    def __init__(
        self,
        tape: Tape,
        role: str,
        halt: Halt,
        inner: "Callable[[Request], Response] | None",
    ) -> None:
        self._tape, self._role, self._inner = tape, role, inner
        self._lock = threading.Lock()
        self.halt = halt

    def complete(self, request: "Request") -> "Response":
        """The answer to one request."""
        from dspy._vendor.lm15.serde import request_to_dict, response_from_dict, response_to_dict

        def live() -> Body:
            if self._inner is None:
                raise EnvironmentMissing("no language model is configured")
            answer: Body = response_to_dict(self._inner(request))
            return answer

        # One at a time: identical requests are told apart by their order.
        with self._lock, self.halt.guarding():
            answer = self._tape.ask(self._role, request_to_dict(request), live)
        response: Response = response_from_dict(answer)
        return response


def language_model(engine: TapedEngine, plan: LlmPlan, model: str) -> Any:
    """dspy's view of a model behind `engine`.

    Raises:
        EnvironmentMissing: dspy is not installed.
    """
    dspy = load_dspy()
    return dspy.LM(
        model,
        engine=engine,
        async_engine=_Blocking(engine),
        cache=False,
        num_retries=0,
        max_tokens=plan.max_tokens,
    )


class _Blocking:
    """The engine for dspy's asynchronous paths, which nothing of ours takes."""

    supports_function_calling = False
    supports_reasoning = False
    supports_response_schema = False
    supported_params: frozenset[str] = frozenset()

    def __init__(self, engine: TapedEngine) -> None:
        self._engine = engine

    async def complete(self, request: "Request") -> "Response":
        return self._engine.complete(request)


def live_model(plan: LlmPlan, api_key: str | None) -> "Callable[[Request], Response]":
    """Makes one attempt at a call through LiteLLM.

    Raises:
        EnvironmentMissing: dspy or litellm is not installed.
    """
    load_dspy()
    if find_spec("litellm") is None:
        raise EnvironmentMissing("litellm is not installed", hint=INSTALL)
    from dspy.clients.engines import LiteLLMEngine

    options: dict[str, Any] = {"timeout": plan.timeout}
    if plan.base_url:
        options["api_base"] = plan.base_url
        options["api_key"] = api_key or "none"
    elif api_key:
        options["api_key"] = api_key
    engine = LiteLLMEngine(**options)

    def complete(request: "Request") -> "Response":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of LiteLLM's own making; an error is raised
            response: Response = engine.complete(request)
        return response

    return complete


def load_dspy() -> Any:
    """The dspy module, with nothing fetched, cached on disk or reported.

    Raises:
        EnvironmentMissing: it is not installed.
    """
    for name, value in (
        ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
        ("LITELLM_OFFLINE_MODE", "true"),
        ("LITELLM_TELEMETRY", "False"),
    ):
        os.environ.setdefault(name, value)
    try:
        import dspy
    except ImportError as error:
        raise EnvironmentMissing("dspy is not installed", hint=INSTALL) from error
    dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)
    dspy.disable_logging()
    return dspy
