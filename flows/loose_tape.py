"""The tapes of calls that are no part of a run: recorded answers read again, and live ones."""

import time
from collections.abc import Callable

from flows.llm_tape import ATTEMPTS, FIRST_WAIT_S, failure_of, worth_another_try
from flows.terminal import say
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
        wait_s = FIRST_WAIT_S
        for attempt in range(ATTEMPTS):
            try:
                answer = live()
            except RefoldError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever a client of an endpoint raises
                failure = failure_of(error)
                if attempt + 1 == ATTEMPTS or not worth_another_try(failure):
                    break
                say(f"{role}: {failure}; asking again in {wait_s:g} s")
                self._sleep(wait_s)
                wait_s *= 2
                continue
            usage = answer.get("usage") or {}
            self.calls += 1
            self.tokens += (usage.get("input_tokens") or 0) + (usage.get("output_tokens") or 0)
            return answer
        raise EnvironmentMissing(f"{request.get('model', 'the model')}: {failure}")
