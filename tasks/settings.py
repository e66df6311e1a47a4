"""Knobs as a person types them (`pp=4`, `fp8=hybrid`), or as a JSON object holds them."""

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import ValidationError

from projection.legality import normalise
from schemas.errors import UserError
from schemas.trial import NormalTrial, TrialConfig
from schemas.wording import problem
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


def parse_settings(assignments: Iterable[str]) -> TrialConfig:
    """The configuration that `KNOB=VALUE` assignments ask for; `null` means the workload's value.

    Raises:
        UserError: an assignment is not one, names no knob, or has a value of the wrong kind.
    """
    values: dict[str, Any] = {}
    for assignment in assignments:
        knob, equals, value = assignment.partition("=")
        if not equals:
            raise UserError(f"--set {assignment!r} is not KNOB=VALUE")
        if knob.strip() in values:
            raise UserError(f"--set sets {knob.strip()} twice")
        values[knob.strip()] = None if value.strip() in ("", "null") else value.strip()
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
        raise UserError(f"{where} {knob}={first['input']!s:.80}: {problem(first)}") from error


def _knob(key: str, where: str) -> str:
    knob = SPELLINGS.get(key, key)
    if knob in TrialConfig.model_fields:
        return knob
    near = get_close_matches(key.strip().lower()[:80], [*TrialConfig.model_fields, *SPELLINGS], n=1)
    did_you_mean = f"; did you mean {near[0]}?" if near else ""
    raise UserError(
        f"{where}: no knob is called {key!r:.80}{did_you_mean}",
        hint="knobs: " + ", ".join(TrialConfig.model_fields),
    )
