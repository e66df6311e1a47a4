"""Which language model a search asks: the one named, the configured one, or none."""

from collections.abc import Mapping
from importlib.util import find_spec
from urllib.parse import urlsplit, urlunsplit

from schemas.errors import EnvironmentMissing, UserError, shown
from schemas.search import LlmPlan, LlmSettings
from tasks.llm.engine import INSTALL
from tasks.llm.jail import INSTALL as JAIL
from tasks.llm.jail import why_not_jailed

DEFAULT_MODEL = "openai/gpt-4o"
"""Asked when there is a key for it and no model is named."""


def choose(settings: LlmSettings, env: Mapping[str, str], named: str | None) -> LlmPlan | None:
    """The plan of a search; `named` is what the command line asked for. None: none is configured.

    Raises:
        EnvironmentMissing: a model was named, and dspy or litellm is not installed; or its driver
            takes a sandbox, and there is none.
        UserError: the endpoint's address is none.
    """
    model = named or _configured(settings, env)
    if model is None:
        return None
    missing = _missing()
    if missing and named:
        raise EnvironmentMissing(f"--llm {named}: {missing[0]} is not installed", hint=INSTALL)
    if missing:
        return None
    if settings.driver == "rlm" and (why := why_not_jailed()) is not None:
        raise EnvironmentMissing(f"agent.driver rlm: no sandbox here: {why}", hint=JAIL)
    # The planner alone needs neither a sandbox nor a strong coder.
    driver = "planner" if settings.driver == "auto" else settings.driver
    return LlmPlan(
        model=model,
        planner_model=settings.planner_model,
        driver=driver,
        base_url=_address(settings.base_url or env.get("OPENAI_API_BASE")),
        max_tokens=settings.max_tokens,
        timeout=settings.timeout,
    )


def why_none(settings: LlmSettings, env: Mapping[str, str]) -> str:
    """Why `choose` found no model where none was named, in words."""
    model = _configured(settings, env)
    if model is None:
        return "no language model is configured (--llm, LLM_MODEL)"
    return f"language model {model} is configured, and {_missing()[0]} is not installed ({INSTALL})"


def _configured(settings: LlmSettings, env: Mapping[str, str]) -> str | None:
    return settings.model or (DEFAULT_MODEL if env.get("OPENAI_API_KEY") else None)


def _missing() -> list[str]:
    """What asking a model takes and is not installed."""
    return [name for name in ("dspy", "litellm") if find_spec(name) is None]


def _address(url: str | None) -> str | None:
    """`url` without what could be a secret."""
    if not url:
        return None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UserError(f"agent.llm.base_url: {shown(url)} is not an http(s) address")
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError as error:
        raise UserError(f"agent.llm.base_url: {shown(url)} has no valid port") from error
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return urlunsplit((parts.scheme, f"{host}{port}", parts.path, "", ""))
