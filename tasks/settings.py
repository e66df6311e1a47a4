"""Knobs as a person types them (`pp=4`, `fp8=hybrid`), or as a JSON object holds them."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from projection.legality import normalise
from schemas.errors import LONGEST_QUOTE, UserError, shown
from schemas.trial import NormalTrial, TrialConfig
from schemas.workload import Workload

SPELLINGS = {
    "schedule": "pp_schedule",
    "recompute": "recompute_granularity",
    "recompute_layers": "recompute_num_layers",
    "deepep": "use_turbo_deepep",
    "fsdp2": "use_torch_fsdp2",
    "distributed_optimizer": "use_distributed_optimizer",
    "loss_fusion": "cross_entropy_loss_fusion",
    "sync_free": "sync_free_stage",
}
"""Short names that are unmistakable."""

_WANTED = {"int_": "a whole number", "bool_": "true or false", "string_": "text"}


def parse_settings(assignments: Iterable[str]) -> TrialConfig:
    """The configuration that `KNOB=VALUE` assignments ask for; `null` means the workload's value.

    Raises:
        UserError: an assignment is not one, names no knob, or has a value of the wrong kind.
    """
    values: dict[str, Any] = {}
    for assignment in assignments:
        knob, equals, value = assignment.partition("=")
        if not equals:
            raise UserError(f"--set {shown(assignment)} is not KNOB=VALUE")
        knob, value = knob.strip(), value.strip()
        if not value:
            raise UserError(
                f"--set {shown(assignment)} has no value",
                hint="null means the workload's own value",
            )
        if knob in values:
            raise UserError(f"--set sets {knob} twice")
        values[knob] = None if value == "null" else value
    return trial_config(values, "--set")


def configured(assignments: Iterable[str], workload: Workload) -> NormalTrial:
    """The workload's configuration with these assignments made.

    Raises:
        UserError: as `parse_settings`.
    """
    return normalise(parse_settings(assignments), workload)


def trial_config(values: Mapping[str, Any], where: str) -> TrialConfig:
    """The configuration an object of knobs asks for.

    Raises:
        UserError: a key names no knob, a knob is named twice, or a value is of the wrong kind.
    """
    named: dict[str, Any] = {}
    for key, value in values.items():
        knob = _knob(key, where)
        if knob in named:
            raise UserError(f"{where} sets {knob} twice")
        named[knob] = value
    try:
        return TrialConfig.model_validate(named)
    except ValidationError as error:
        first = error.errors()[0]
        knob = ".".join(str(part) for part in first["loc"])
        given = f"{knob}={first['input']}"
        raise UserError(f"{where}: {shown(given)} is not {_wanted(first)}") from error


def _wanted(problem: Mapping[str, Any]) -> str:
    """What a knob takes, in words; pydantic's own words for what has no entry."""
    kind = str(problem["type"])
    for beginning, words in _WANTED.items():
        if kind.startswith(beginning):
            return words
    if kind == "literal_error":
        return f"one of {problem['ctx']['expected']}"
    return f"a value it takes ({problem['msg']})"


def _knob(key: str, where: str) -> str:
    knob = SPELLINGS.get(key, key)
    if knob in TrialConfig.model_fields:
        return knob
    near = get_close_matches(
        key.strip().lower()[:LONGEST_QUOTE], [*TrialConfig.model_fields, *SPELLINGS], n=1
    )
    did_you_mean = f"; did you mean {near[0]}?" if near else ""
    raise UserError(
        f"{where}: no knob is called {shown(key)}{did_you_mean}",
        hint="knobs: " + ", ".join(TrialConfig.model_fields),
    )
