"""The inputs of a fork: its parent's, with what was asked to be different."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from schemas.errors import UserError, shown
from schemas.model import FrozenModel
from schemas.wording import problem
from tasks.inputs import Inputs, key_of, secrets_in, texts_of
from tasks.resolve import resolve_cluster, resolve_workload
from tasks.resolve.environment import search_dotenv

SEARCH_SETTINGS = (
    "budget",
    "axes",
    "pinned",
    "max_gbs",
    "prompt_extras",
    "mode",
    "memory_regime",
    "gemm_backend",
)
"""What `--set search.…` may change."""
CLUSTER_SETTINGS = ("memory_safety_margin", "gpu_hour_price", "gpu_power_w", "stack", "placement")
"""What `--set cluster.…` may change; whatever else a cluster is comes from its file."""
_FROM_THE_COMMAND_LINE = ("mode", "profiling_mode", "memory_regime", "gemm_backend")
"""Parts of a search no file sets: another cluster file leaves them as they were."""

Model = TypeVar("Model", bound=FrozenModel)


def with_workload(inputs: Inputs, path: Path, model_path: Sequence[Path]) -> Inputs:
    """`inputs` for another workload file.

    Raises:
        WorkloadError: it, or a file it names, is wrong.
    """
    workload = resolve_workload(path, model_path=model_path)
    kept = {name: text for name, text in inputs.files.items() if name not in inputs.workload.files}
    return replace(
        inputs,
        workload=workload,
        warnings=(*workload.warnings, *inputs.cluster_warnings),
        files={**texts_of(workload), **kept},
        known_secrets=inputs.known_secrets | _environment_secrets(),
    )


def with_cluster(inputs: Inputs, path: Path) -> Inputs:
    """`inputs` for another target-cluster file, which brings its own search and budgets.

    Raises:
        ClusterError: it, or a file it names, is wrong.
    """
    resolved = resolve_cluster(path)
    kept = {name: text for name, text in inputs.files.items() if name in inputs.workload.files}
    asked = {name: getattr(inputs.search, name) for name in (*_FROM_THE_COMMAND_LINE, "llm")}
    return replace(
        inputs,
        cluster=resolved.cluster,
        search=resolved.search.model_copy(update=asked),
        warnings=(*inputs.workload.warnings, *resolved.warnings),
        files={**kept, **resolved.files},
        llm=resolved.llm,
        known_secrets=inputs.known_secrets | _environment_secrets() | key_of(resolved.llm),
    )


def with_settings(inputs: Inputs, assignments: Iterable[str]) -> Inputs:
    """`inputs` with `search.PATH=VALUE` and `cluster.PATH=VALUE` applied; values are YAML.

    Raises:
        UserError: a path or a value is wrong; the message has the nearest right spelling.
    """
    search = inputs.search.model_dump(mode="json")
    cluster = inputs.cluster.model_dump(mode="json")
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        root, _, below = path.strip().partition(".")
        if not equals or root not in ("search", "cluster") or not below:
            raise UserError(
                f"--set {shown(assignment)} is not search.PATH=VALUE or cluster.PATH=VALUE",
                hint="for example --set search.budget.max_perf_calls=60",
            )
        known = SEARCH_SETTINGS if root == "search" else CLUSTER_SETTINGS
        _among(path, below.partition(".")[0], known)
        _assign(search if root == "search" else cluster, path, below.split("."), _value(text, path))
    return replace(
        inputs,
        search=_checked(inputs.search, search, "search"),
        cluster=_checked(inputs.cluster, cluster, "cluster"),
    )


def _assign(values: dict[str, Any], path: str, keys: list[str], value: Any) -> None:
    *above, last = keys
    for key in above:
        _among(path, key, values)
        if not isinstance(values[key], dict):
            raise UserError(f"--set {path}: {key} has nothing below it")
        values = values[key]
    if above[-1:] != ["pinned"]:  # which holds only the knobs somebody pinned
        _among(path, last, values)
    values[last] = value


def _among(path: str, key: str, names: Iterable[str] | Mapping[str, Any]) -> None:
    known = list(names)
    if key in known:
        return
    near = get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there is {', '.join(known)}"
    raise UserError(f"--set {path}: there is no {shown(key)} to set", hint=hint)


def _value(text: str, path: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError(f"--set {path}: {shown(text)} is not a YAML value") from error


def _checked(before: Model, values: dict[str, Any], root: str) -> Model:
    try:
        return type(before).model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in (root, *first["loc"]))
        raise UserError(f"--set {where}: {problem(first)}") from error


def _environment_secrets() -> Any:
    return secrets_in(search_dotenv(os.environ, Path.cwd()))
