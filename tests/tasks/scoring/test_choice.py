"""Which engine is chosen, and what is refused before anything is started."""

from typing import Any

import pytest

from schemas.errors import EnvironmentMissing, UserError
from schemas.scoring import Scoring
from tasks.scoring import chosen
from tasks.scoring.choice import ADDRESS_VARIABLE, ENGINE_VARIABLE


def choose(env: dict[str, str] | None = None, **asked: Any) -> Scoring:
    return chosen(Scoring(**asked), env or {})


def test_nobody_who_asks_gets_auto():
    assert chosen(None, {}) == Scoring(engine="auto")
    assert chosen(None, {ENGINE_VARIABLE: "", ADDRESS_VARIABLE: ""}) == Scoring(engine="auto")


def test_what_is_asked_stands_before_the_environment():
    env = {ENGINE_VARIABLE: "processes"}
    assert choose(env).engine == "processes"
    assert choose(env, engine="inline").engine == "inline"
    assert choose(env, workers=3) == Scoring(engine="processes", workers=3)


def test_the_environments_address_is_for_its_engine():
    env = {ENGINE_VARIABLE: "dask", ADDRESS_VARIABLE: "tcp://head:8786"}
    assert choose(env).address == "tcp://head:8786"
    assert choose(env, engine="dask").address == "tcp://head:8786"
    assert choose(env, engine="ray").address is None
    assert choose(env, engine="inline").address is None
    assert choose({ADDRESS_VARIABLE: "auto"}, engine="ray").address == "auto"


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"engine": "inline", "workers": 2}, "scoring inline has no workers"),
        ({"address": "tcp://head:8786"}, "the engine is auto"),
        ({"engine": "processes", "address": "tcp://head:8786"}, "the engine is processes"),
        ({"engine": "dask", "address": "tcp://head:8786", "workers": 2}, "has the workers it has"),
        ({"engine": "dask", "address": "head:8786"}, "is not an address of Dask"),
        ({"engine": "dask", "address": "ray://head:10001"}, "is not an address of Dask"),
        ({"engine": "dask", "address": "tcp://head"}, "is not an address of Dask"),
        ({"engine": "ray", "address": "tcp://head:1"}, "is not an address of Ray"),
        ({"engine": "ray", "address": "head"}, "is not an address of Ray"),
    ],
)
def test_contradictions_are_refused(asked: dict[str, Any], says: str):
    with pytest.raises(UserError, match=says):
        choose(**asked)


def test_an_address_with_a_password_is_refused_and_not_repeated():
    with pytest.raises(UserError) as refused:
        choose(engine="ray", address="ray://me:hunter2@head:10001")
    assert "hunter2" not in f"{refused.value} {refused.value.hint}"


@pytest.mark.parametrize("address", ["auto", "head:6379", "ray://head:10001", "[::1]:6379"])
def test_ray_has_addresses_of_three_kinds(address: str):
    assert choose(engine="ray", address=address).address == address


def test_an_unknown_engine_in_the_environment_is_named():
    with pytest.raises(UserError, match="REFOLD_SCORING: no engine is called 'spark'"):
        choose({ENGINE_VARIABLE: "spark"})


def test_an_engine_that_is_not_installed_is_named_with_the_command(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr("tasks.scoring.choice.find_spec", lambda _: None)
    with pytest.raises(EnvironmentMissing, match="distributed is not installed") as refused:
        choose(engine="dask")
    assert refused.value.hint is not None
    assert "pip install 'refold[dask]'" in refused.value.hint
    assert choose(engine="processes").engine == "processes"
