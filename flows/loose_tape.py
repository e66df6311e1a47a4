"""The tapes of calls that are no part of a run: recorded answers read again, and live ones."""

import time
from collections.abc import Callable

from flows.llm_tape import Attempts, failure_of
from schemas.errors import EnvironmentMissing, RefoldError
from tasks.llm.engine import Body


class KnownAnswer:
    """Gives one recorded answer, whatever is asked."""

    def __init__(self, answer: Body) -> None:
        self._answer = answer

    def ask(self, role: str, request: Body, live: Callable[[], Body]) -> Body:  # noqa: ARG002
        """The answer."""
        return self._answer


class LooseTape:
    """Makes live calls and keeps none; failures that may pass are tried again."""

    def __init__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        self._sleep = sleep
        self.calls = 0
        self.tokens = 0
        """Sent and received, as far as they were reported."""

    def ask(self, role: str, request: Body, live: Callable[[], Body]) -> Body:
        """A live answer.

        Raises:
            EnvironmentMissing: every attempt failed, or one in a way that another would not mend.
        """
        attempts = Attempts(role, self._sleep)
        while True:
            try:
                answer = live()
            except RefoldError:
                raise
            except Exception as error:
                failure = failure_of(error)
                if attempts.another(failure):
                    continue
                model = request.get("model", "the model")
                raise EnvironmentMissing(f"{model}: {failure}") from error
            usage = answer.get("usage") or {}
            self.calls += 1
            self.tokens += (usage.get("input_tokens") or 0) + (usage.get("output_tokens") or 0)
            return answer
