"""A trial as a complete workload file: the workload's own document with the trial's settings."""

from collections.abc import Callable, Mapping
from typing import Any

import yaml

from schemas.trial import NormalTrial
from schemas.workload import Workload
from storage.exports.primus import overrides_of

DerivedSettings = Callable[[NormalTrial], Mapping[str, Any]]
"""What a trial needs beside its knobs ("fp8_recipe": "tensorwise"); None unsets a key."""

_FIRST = ("work_group", "user_name", "exp_name", "workspace", "platform")
_FIRST_OF_MODULE = ("framework", "config", "model", "name")


def nothing_derived(_trial: NormalTrial) -> Mapping[str, Any]:
    """No setting follows from a trial beyond its knobs."""
    return {}


def overlay(
    workload: Workload, trial: NormalTrial, derived: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The workload file that runs `trial`: keys Refold does not use are kept as they are.

    Args:
        workload: the workload the trial was proposed for.
        trial: its configuration. The workload's own gives the workload's document unchanged.
        derived: further settings that follow from the trial ("fp8_recipe": "tensorwise").
    """
    document: dict[str, Any] = _plain(workload.model_dump(mode="json")["document"])
    if trial != workload.baseline:
        module = document.setdefault("modules", {}).setdefault(workload.trainer, {})
        stated = module.get("overrides") or {}
        module["overrides"] = stated | overrides_of(trial, workload) | dict(derived or {})
    return document


def overlay_yaml(
    workload: Workload,
    trial: NormalTrial,
    derived: Mapping[str, Any] | None = None,
    *,
    header: str,
) -> str:
    """`overlay` as YAML, below `header` as comment lines. Equal values give equal bytes."""
    comment = "".join(f"# {line}\n" for line in header.splitlines())
    body = yaml.safe_dump(
        _ordered(overlay(workload, trial, derived), workload.trainer),
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=100,
    )
    return comment + body


def _ordered(document: dict[str, Any], trainer: str) -> dict[str, Any]:
    """Keys in a fixed order: the document may come from a file or from a run's sorted blob."""
    ordered = _by_key(document, _FIRST, last=("modules",))
    modules = ordered.get("modules")
    if isinstance(modules, dict) and isinstance(modules.get(trainer), dict):
        ordered["modules"] = {
            name: _by_key(module, _FIRST_OF_MODULE, last=("overrides",))
            if name == trainer
            else module
            for name, module in modules.items()
        }
    return ordered


def _by_key(
    mapping: dict[str, Any], first: tuple[str, ...], last: tuple[str, ...]
) -> dict[str, Any]:
    middle = sorted(key for key in mapping if key not in (*first, *last))
    return {key: _plain(mapping[key]) for key in (*first, *middle, *last) if key in mapping}


def _plain(value: Any) -> Any:
    """A copy of JSON values, mappings sorted by key, no container shared (YAML would alias it)."""
    if isinstance(value, dict):
        return {key: _plain(value[key]) for key in sorted(value)}
    return [_plain(item) for item in value] if isinstance(value, list) else value
