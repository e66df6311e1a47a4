"""Which engine scores: what was asked, else what the environment says, else auto."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final, get_args

from schemas.errors import EnvironmentMissing, UserError, shown
from schemas.scoring import Engine, Scoring

ENGINE_VARIABLE: Final = "REFOLD_SCORING"
ADDRESS_VARIABLE: Final = "REFOLD_SCORING_ADDRESS"

_ENGINES: Final[Mapping[str, Engine]] = {name: name for name in get_args(Engine)}
_PACKAGES: Final = {"dask": "distributed", "ray": "ray"}
_SCHEMES: Final = {"dask": ("tcp", "tls"), "ray": ("ray",)}
_LIKE: Final = {"dask": "tcp://HOST:PORT", "ray": "ray://HOST:PORT, HOST:PORT or auto"}


def chosen(asked: Scoring | None, env: Mapping[str, str]) -> Scoring:
    """`asked`, with what it leaves open taken from `env`; its engine is set.

    The environment's address is for the environment's engine: one asked for by name that is another
    does without it.

    Raises:
        UserError: an unknown engine, or settings that contradict each other.
        EnvironmentMissing: the engine asked for is not installed.
    """
    wanted = asked or Scoring()
    named = _engine_of(env.get(ENGINE_VARIABLE) or None)
    engine = wanted.engine or named or "auto"
    address = wanted.address
    if address is None and (wanted.engine is None or engine == (named or engine) in _PACKAGES):
        address = env.get(ADDRESS_VARIABLE) or None
    choice = Scoring(engine=engine, workers=wanted.workers, address=address)
    _refuse_contradictions(choice)
    _refuse_what_is_not_installed(engine)
    return choice


def _engine_of(name: str | None) -> Engine | None:
    if name is None:
        return None
    if name not in _ENGINES:
        raise UserError(
            f"{ENGINE_VARIABLE}: no engine is called {shown(name)}", hint=", ".join(_ENGINES)
        )
    return _ENGINES[name]


def _refuse_contradictions(choice: Scoring) -> None:
    engine, address = choice.engine, choice.address
    if engine == "inline" and choice.workers is not None:
        raise UserError("scoring inline has no workers: leave --workers out")
    if address is None:
        return
    if engine not in _PACKAGES:
        raise UserError(
            f"a scoring address is for an engine on a cluster, and the engine is {engine}",
            hint="say --scoring dask or --scoring ray with it",
        )
    if choice.workers is not None:
        raise UserError("a cluster that is there has the workers it has: leave --workers out")
    if "@" in address or "?" in address:
        raise UserError(
            "a scoring address has no user, password or query, and is not repeated here"
        )
    if not _can_be_one(engine, address):
        raise UserError(
            f"{shown(address)} is not an address of {engine.title()}", hint=_LIKE[engine]
        )


def _can_be_one(engine: str, address: str) -> bool:
    scheme, separator, place = address.rpartition("://")
    if engine == "ray" and address == "auto":
        return True
    if scheme not in _SCHEMES[engine] and (separator or engine == "dask"):
        return False
    host, colon, port = place.rpartition(":")
    return bool(host and colon) and port.isdecimal()


def _refuse_what_is_not_installed(engine: Engine) -> None:
    package = _PACKAGES.get(engine)
    if package is not None and find_spec(package) is None:
        raise EnvironmentMissing(
            f"scoring on {engine.title()} was asked for, and {package} is not installed",
            hint=f"pip install 'refold[{engine}]', or leave the engine to --scoring auto",
        )
