"""The tape of a run: every call of a language model is an event, and is answered by it on replay.

An attempt that failed is an event too. Budgets of tokens, money and time are looked at before each
call, and the waits between attempts are those of live calls only.
"""

import json
import time
from collections.abc import Callable, Collection
from typing import Any

from flows.budgets import time_is_up, what_stops
from flows.deciding import entry
from flows.ledger import Recorder
from flows.terminal import say
from schemas.errors import RefoldError
from schemas.events import LLMCalled
from storage.canonical import canonical, sha256_hex
from storage.secret_scan import MIN_SECRET_LENGTH
from storage.state import State
from tasks.llm.engine import Body
from tasks.llm.plain import plain
from tasks.llm.pricing import cost_usd
from tasks.llm.prompt_texts import prompt_hash

ATTEMPTS = 4
FIRST_WAIT_S = 1.0
"""Before the second attempt; doubled before each further one."""
_WORTH_ANOTHER_TRY = (
    "RateLimitError",
    "ServerError",
    "TimeoutError",
    "RequestTimeoutError",
    "TransportError",
)


class ModelGone(RefoldError):
    """A language model could not be had: refused, unreachable, or failing again and again."""


class ModelBudgetSpent(RefoldError):
    """No further call of a language model is within the budget; the message says which."""


class Attempts:
    """How often a call that fails is made again, and how long is waited in between."""

    def __init__(self, role: str, sleep: Callable[[float], None]) -> None:
        self._role, self._sleep = role, sleep
        self._made = 0
        self._wait_s = FIRST_WAIT_S

    def another(self, failure: str, *, live: bool = True) -> bool:
        """Whether to ask again after `failure`; a live call is waited for and said first."""
        self._made += 1
        if self._made == ATTEMPTS or not failure.startswith(_WORTH_ANOTHER_TRY):
            return False
        if live:
            say(f"{self._role}: {failure}; asking again in {self._wait_s:g} s")
            self._sleep(self._wait_s)
        self._wait_s *= 2
        return True


class RunTape:
    """The tape of one run's rounds.

    Args:
        recorder: the run.
        secrets: texts an endpoint might echo, which are struck out of answers.
        sleep: waits between attempts.
    """

    def __init__(
        self,
        recorder: Recorder,
        secrets: Collection[str] = (),
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._recorder = recorder
        self._secrets = tuple(secrets)
        self._sleep = sleep
        self.last_call: int | None = None
        """Number of the last call that was answered."""

    def ask(self, role: str, request: Body, live: Callable[[], Body]) -> Body:
        """The recorded answer, or a live one, recorded before it is returned.

        Raises:
            ModelBudgetSpent: a budget is spent.
            ModelGone: every attempt failed, or one in a way that another would not mend.
        """
        key = request_key(request)
        attempts = Attempts(role, self._sleep)
        while True:
            if (spent := calls_stop(self._recorder)) is not None:
                raise ModelBudgetSpent(spent)
            recorded = self._recorder.recorded_call(key)
            if recorded is None:
                event, answer = self._live(role, key, request, live)
            else:
                event, answer = recorded
            self._recorder.record(entry(self._recorder, event))
            if answer is not None:
                self.last_call = event.call
                body: Body = json.loads(answer)
                return body
            if not attempts.another(str(event.failure), live=recorded is None):
                raise ModelGone(f"{event.model}: {event.failure}")

    def _live(
        self, role: str, key: str, request: Body, live: Callable[[], Body]
    ) -> tuple[LLMCalled, bytes | None]:
        answer: bytes | None = None
        failure: str | None = None
        usage: Body = {}
        begun = time.monotonic()
        try:
            body = live()
        except RefoldError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a client of an endpoint raises
            failure = failure_of(error)
        else:
            usage = body.get("usage") or {}
            answer = self._without_secrets(canonical(plain(body))).encode()
        latency_ms = 1000 * (time.monotonic() - begun)
        model = str(request.get("model", ""))
        tokens = (usage.get("input_tokens"), usage.get("output_tokens"))
        event = LLMCalled(
            call=len(self._recorder.state.calls),
            role=role,
            model=model,
            prompt_hash=prompt_hash(role.partition(":")[0]),
            request_key=key,
            request_blob=self._recorder.put_blob(canonical(request).encode()),
            answer_blob=None if answer is None else self._recorder.put_blob(answer),
            failure=failure,
            input_tokens=tokens[0],
            output_tokens=tokens[1],
            cost_usd=cost_usd(model, *tokens),
            latency_ms=latency_ms,
        )
        return event, answer

    def _without_secrets(self, text: str) -> str:
        for secret in self._secrets:
            if len(secret) >= MIN_SECRET_LENGTH:
                text = text.replace(json.dumps(secret, ensure_ascii=False)[1:-1], "[redacted]")
        return text


def request_key(request: Body) -> str:
    """What makes two requests the same: all of it but the model's name, 64 hex digits."""
    body = {name: value for name, value in request.items() if name != "model"}
    return sha256_hex(canonical(body).encode())


def calls_stop(recorder: Recorder) -> str | None:
    """The budget that forbids another call of a model, in words; None: there is one left."""
    time_is_up(recorder)
    state = recorder.state
    return what_stops(state) or _tokens_spent(state)


def _tokens_spent(state: State) -> str | None:
    budget, spent = state.spec.search.budget, state.spent
    if budget.max_llm_tokens is not None and spent.llm_tokens >= budget.max_llm_tokens:
        return f"max_llm_tokens: {spent.llm_tokens} of {budget.max_llm_tokens} tokens are spent"
    if budget.max_llm_cost_usd is not None and spent.llm_cost_usd >= budget.max_llm_cost_usd:
        return (
            f"max_llm_cost_usd: {spent.llm_cost_usd:.2f} of {budget.max_llm_cost_usd:.2f} USD"
            " are spent"
        )
    return None


def failure_of(error: Exception) -> str:
    """The kind of a failure. Its message may quote a request, an address or a key: it is left."""
    status: Any = getattr(error, "status", None)
    return type(error).__name__ + (f" (HTTP {status})" if status else "")
