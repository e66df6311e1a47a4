"""How a search reaches language models: which, with what key, and what must never be written."""

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from pathlib import Path

from flows.ledger import Recorder
from flows.terminal import say
from schemas.errors import EnvironmentMissing
from schemas.search import LlmSettings
from tasks.inputs import Inputs
from tasks.llm.choice import choose, why_none
from tasks.resolve.environment import search_dotenv
from tasks.resolve.redaction import is_secret_variable


@dataclass(frozen=True)
class Models:
    """What rounds of a model need beside the run. Keys are in no record."""

    api_key: str | None = field(default=None, repr=False)
    secrets: Collection[str] = field(default=(), repr=False)
    again: Callable[[], Recorder] | None = field(default=None, repr=False)
    """Gives the recorder that takes up an open round from its start; None: the run's own does."""
    live: bool = True
    """False: only recorded answers are to be had."""


def key_from(settings: LlmSettings) -> str | None:
    """The API key of the cluster file, if it has one; LiteLLM finds those of the environment."""
    return None if settings.api_key is None else settings.api_key.get_secret_value()


def with_model(inputs: Inputs, named: str | None) -> Inputs:
    """`inputs` with the language model that is to propose, said in one line when there is none.

    Raises:
        EnvironmentMissing: one was named, and what it takes is not installed.
        UserError: its endpoint's address is none.
    """
    asking, why = _asking(inputs, named)
    if why is not None:
        say(f"{why}: the seed plan alone proposes")
    return asking


def with_agent(inputs: Inputs, named: str | None) -> Inputs:
    """`with_model`, where a model there must be.

    Raises:
        EnvironmentMissing: there is none, or what it takes is not installed.
        UserError: its endpoint's address is none.
    """
    asking, why = _asking(inputs, named)
    if why is not None:
        raise EnvironmentMissing(f"--agent-only: {why}", hint="--seed-only needs none")
    return asking


def _asking(inputs: Inputs, named: str | None) -> tuple[Inputs, str | None]:
    """`inputs` with the model that was chosen; as they are, and why, where there is none."""
    environment = search_dotenv(os.environ, Path.cwd())
    plan = choose(inputs.llm, environment, named)
    if plan is None:
        return inputs, why_none(inputs.llm, environment)
    return replace(inputs, search=inputs.search.model_copy(update={"llm": plan})), None


def export_keys() -> None:
    """Puts keys that stand in a `.env` file where LiteLLM looks for them: the environment."""
    for name, value in search_dotenv({}, Path.cwd()).items():
        if value and is_secret_variable(name):
            os.environ.setdefault(name, value)
