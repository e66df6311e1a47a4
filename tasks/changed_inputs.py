"""The inputs of a fork: its parent's, with what was asked to be different."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from schemas.cluster import Cluster
from schemas.cluster_file import Optimization
from schemas.errors import UserError, shown
from schemas.model import FrozenModel
from schemas.search import SearchSpec
from tasks.inputs import Inputs, key_of, secrets_in, texts_of
from tasks.resolve import on_this_host, resolve_cluster, resolve_workload
from tasks.resolve.environment import search_dotenv
from tasks.resolve.file_schema import as_model
from tasks.resolve.pinned import pinned_knobs
from tasks.resolve.stack import DETECT
from tasks.resolve.yaml_file import YamlFile, parse_value

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
FROM_THE_COMMAND_LINE = ("mode", "profiling_mode", "memory_regime", "gemm_backend")
"""Parts of a search no file sets: another cluster file leaves them as they were."""

SET = "declared (--set)"
PINNED = "pinned"
_IN_FILES = ("budget", "axes", PINNED, "max_gbs")
"""Parts of a search that a cluster file bounds more closely than the search does."""


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
    resolved = on_this_host(resolve_cluster(path), inputs.workload.framework)
    kept = {name: text for name, text in inputs.files.items() if name in inputs.workload.files}
    asked = {name: getattr(inputs.search, name) for name in (*FROM_THE_COMMAND_LINE, "llm")}
    return replace(
        inputs,
        cluster=resolved.cluster,
        search=resolved.search.model_copy(update=asked),
        warnings=(*inputs.workload.warnings, *resolved.warnings),
        files={**kept, **resolved.files},
        llm=resolved.llm,
        known_secrets=inputs.known_secrets | _environment_secrets() | key_of(resolved.llm),
        stack_origin=resolved.stack_origin,
        read_from=resolved.read_from,
    )


def with_settings(inputs: Inputs, assignments: Iterable[str]) -> Inputs:
    """`inputs` with `search.PATH=VALUE` and `cluster.PATH=VALUE` applied; values are YAML, and null
    is the default, or of a pinned knob: no longer pinned.

    Raises:
        UserError: a path or a value is wrong; the message has the nearest right spelling.
    """
    values = {"search": _plain(inputs.search), "cluster": _plain(inputs.cluster)}
    given = list(assignments)
    if not given:
        return inputs
    for assignment in given:
        path, _, text = assignment.partition("=")
        root, _, below = path.strip().partition(".")
        if not text.strip() or root not in values or not below:
            raise UserError(
                f"--set {shown(assignment)} is not search.PATH=VALUE or cluster.PATH=VALUE",
                hint="for example --set search.budget.max_perf_calls=60",
            )
        known = SEARCH_SETTINGS if root == "search" else CLUSTER_SETTINGS
        _among(path, below.partition(".")[0], known)
        _assign(values[root], path, below.split("."), parse_value(text, _option(path), UserError))
    return _checked(inputs, values)


def _assign(values: dict[str, Any], path: str, keys: list[str], value: Any) -> None:
    *above, last = keys
    for key in above:
        _among(path, key, values)
        if not isinstance(values[key], dict):
            raise UserError(f"{_option(path)}: {key} has nothing below it")
        values = values[key]
    if above[-1:] != [PINNED]:  # which holds only the knobs somebody pinned
        _among(path, last, values)
    if isinstance(values.get(last), dict) and last != PINNED:
        some = next(iter(values[last]))
        raise UserError(f"{_option(path)}: set what is below it, as {path}.{some}")
    values[last] = value
    if value is None and above[-1:] == [PINNED]:
        del values[last]


def _among(path: str, key: str, names: Iterable[str] | Mapping[str, Any]) -> None:
    known = list(names)
    if key in known:
        return
    near = get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there is {', '.join(known) or 'nothing'}"
    raise UserError(f"{_option(path)}: there is no {shown(key)} to set", hint=hint)


def _checked(inputs: Inputs, values: dict[str, Any]) -> Inputs:
    """`inputs` with `values`, held to what a cluster file may say."""
    file = YamlFile("--set", values, "")
    in_files = {key: values["search"][key] for key in _IN_FILES}
    asked = as_model(Optimization, in_files, file, ("search",))
    pinned = pinned_knobs(asked.pinned, file, ("search", PINNED))
    search = as_model(SearchSpec, {**values["search"], PINNED: pinned}, file, ("search",))
    cluster = as_model(Cluster, values["cluster"], file, ("cluster",))
    if DETECT in cluster.stack.parts.values():
        raise UserError(
            f"--set: a stack is looked for ({DETECT}) when a cluster file is read; give a version",
            hint="or fork with --target-cluster",
        )
    return replace(
        inputs, search=search, cluster=cluster, stack_origin=_origin_after(inputs, cluster)
    )


def _origin_after(inputs: Inputs, cluster: Cluster) -> dict[str, str]:
    """Where the stack of `cluster` came from: what differs from the one before was set."""
    before, after = inputs.cluster.stack.parts, cluster.stack.parts
    kept = {name: where for name, where in inputs.stack_origin.items() if name in after}
    return kept | {name: SET for name in after if after[name] != before.get(name)}


def _option(path: str) -> str:
    return f"--set {shown(path)[1:-1]}"


def _plain(model: FrozenModel) -> dict[str, Any]:
    return model.model_dump(mode="json")


def _environment_secrets() -> Any:
    return secrets_in(search_dotenv(os.environ, Path.cwd()))
