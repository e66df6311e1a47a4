"""Which model a search asks, and what is said where there is none."""

from importlib.util import find_spec
from typing import Any

import pytest

from schemas.errors import EnvironmentMissing
from schemas.search import LlmSettings
from tasks.llm import choice
from tasks.llm.choice import choose, why_none


@pytest.fixture
def no_dspy(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(name: str) -> Any:
        return None if name == "dspy" else find_spec(name)

    monkeypatch.setattr(choice, "find_spec", found)


def test_nothing_configured_is_said_so():
    assert choose(LlmSettings(), {}, None) is None
    assert why_none(LlmSettings(), {}) == "no language model is configured (--llm, LLM_MODEL)"


@pytest.mark.parametrize(
    ("settings", "env", "model"),
    [
        (LlmSettings(model="openai/mine"), {}, "openai/mine"),
        (LlmSettings(), {"OPENAI_API_KEY": "sk-x"}, "openai/gpt-4o"),
    ],
)
def test_a_configured_model_that_cannot_be_asked_is_named_with_what_is_missing(
    settings: LlmSettings, env: dict[str, str], model: str, no_dspy: None
):
    assert choose(settings, env, None) is None
    why = why_none(settings, env)
    assert model in why
    assert "dspy is not installed" in why
    assert "sk-x" not in why


def test_one_that_was_named_and_cannot_be_asked_is_an_error(no_dspy: None):
    with pytest.raises(EnvironmentMissing, match="dspy is not installed"):
        choose(LlmSettings(), {}, "openai/mine")
