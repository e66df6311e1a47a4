"""The resolve step: two files become the values everything else is a function of."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import yaml
from pydantic import SecretStr

from projection.gemm import GemmModel, gemm_model
from projection.oracle import Oracle
from projection.signature import signature_of
from schemas.cluster import Cluster
from schemas.errors import UserError, WorkloadError
from schemas.search import LlmSettings, SearchSpec
from schemas.signature import Signature
from schemas.workload import Workload
from tasks.evaluators import Dry, Evaluator, Full, MemoryReal
from tasks.resolve import known_workload, on_this_host, resolve_cluster
from tasks.resolve.environment import search_dotenv, substitute
from tasks.resolve.redaction import SettingPath, is_secret_variable, redact, secret_paths
from tasks.resolve.sources import is_shipped
from tasks.resolve.yaml_file import read_yaml


@dataclass(frozen=True)
class Inputs:
    """A resolved workload, cluster and search. Holds no secret, and pickles."""

    workload: Workload
    cluster: Cluster
    search: SearchSpec
    warnings: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    """Every input file as read, secrets redacted, by path as given."""
    llm: LlmSettings = field(default_factory=LlmSettings)
    """How the cluster file says to reach a language model."""
    known_secrets: frozenset[SecretStr] = frozenset()
    """Keys that must never be written."""
    stack_origin: Mapping[str, str] = field(default_factory=dict)
    """Where each entry of the cluster's stack came from; of a recorded run, as it was recorded."""
    read_from: Mapping[str, str] = field(default_factory=dict)
    """The user's own file of `gpu`, `network` and `calibration`, where one was read."""

    @cached_property
    def gemm(self) -> GemmModel:
        """The GEMM model of the search's backend on the cluster's GPU.

        Raises:
            EnvironmentMissing: the backend was asked for by name and is not installed.
        """
        return gemm_model(self.cluster.gpu, self.search.gemm_backend)

    @cached_property
    def signature(self) -> Signature:
        """What a score depends on."""
        return signature_of(self.workload, self.cluster, gemm=self.gemm, origin=self.stack_origin)

    @property
    def cluster_warnings(self) -> tuple[str, ...]:
        """The warnings that are not the workload's own, which it carries."""
        return tuple(line for line in self.warnings if line not in self.workload.warnings)

    @property
    def lesser_paths(self) -> tuple[str, ...]:
        """What this run does without, in words."""
        wants_origami = self.cluster.gpu.vendor == "amd" and self.search.gemm_backend == "auto"
        if wants_origami and self.gemm.name != "origami":
            return (f"GEMM times from the {self.gemm.name} model: Origami is not installed",)
        return ()

    def oracle(self) -> Oracle:
        """The oracle under this signature."""
        return Oracle(self.workload, self.cluster, self.search, signature=self.signature.hashes)

    def secrets(self) -> frozenset[str]:
        """The keys as text, for a log that refuses to write them."""
        return frozenset(secret.get_secret_value() for secret in self.known_secrets)

    def fresh(self) -> "Inputs":
        """These for another process: without what was computed here, or is not for it to know."""
        return replace(self, known_secrets=frozenset(), files={}, llm=LlmSettings())

    def fresh_evaluator(self) -> Callable[[], Evaluator]:
        """`evaluator` for another process: pickles."""
        return partial(Inputs.evaluator, self.fresh())

    def evaluator(self) -> Evaluator:
        """Who answers for trials in the search's mode."""
        if self.search.mode == "dry":
            return Dry(self.workload, self.cluster, self.signature.hashes)
        if self.search.mode == "memory-real":
            return MemoryReal(self.oracle(), self.workload, self.cluster)
        return Full(self.oracle())


def resolve_pair(
    workload: Path,
    target_cluster: Path,
    model_path: Sequence[Path] = (),
    *,
    env: Mapping[str, str] | None = None,
    detect: bool = False,
    **search: Any,
) -> Inputs:
    """Both files resolved; `search` overrides fields of the cluster file's search.

    `detect`: look for the software stack on this host, as if the file said it was the one.

    Raises:
        UserError: a file, a key in it or an override is wrong.
    """
    resolved = resolve_cluster(target_cluster, env=env)
    job = known_workload(workload, model_path=model_path, env=env)
    resolved = on_this_host(resolved, job.framework, env=env, detect=detect)
    environment = search_dotenv(os.environ if env is None else env, Path.cwd())
    budget = resolved.search.budget
    if (seeds := search.pop("seed_budget", None)) is not None:
        budget = budget.model_copy(update={"seed_budget": seeds})
    changes = {key: value for key, value in search.items() if value is not None}
    return Inputs(
        workload=job,
        cluster=resolved.cluster,
        search=resolved.search.model_copy(update={**changes, "budget": budget}),
        warnings=(*job.warnings, *resolved.warnings),
        files={**texts_of(job), **resolved.files},
        llm=resolved.llm,
        known_secrets=secrets_in(environment) | key_of(resolved.llm),
        stack_origin=resolved.stack_origin,
        read_from=resolved.read_from,
    )


def secrets_in(environment: Mapping[str, str]) -> frozenset[SecretStr]:
    """The values of variables whose names say that they are keys, `.env` files included."""
    return frozenset(
        SecretStr(value)
        for name, value in environment.items()
        if value and is_secret_variable(name)
    )


def secrets_in_files(paths: Iterable[str], environment: Mapping[str, str]) -> frozenset[SecretStr]:
    """The secrets that stand in input files, of those that are still where they were.

    A file that is gone or no longer one has none to find.
    """
    found: set[SecretStr] = set()
    for path in paths:
        try:
            file = read_yaml(Path(path), path, UserError)
            values = substitute(file, environment, UserError)
        except UserError:
            continue
        for keys in secret_paths(values):
            found |= {SecretStr(text) for text in _texts_at(values, keys) if text}
    return frozenset(found)


def _texts_at(values: Any, keys: SettingPath) -> list[str]:
    for key in keys:
        values = values[key]
    return [str(item) for item in (values if isinstance(values, list) else [values])]


def key_of(llm: LlmSettings) -> frozenset[SecretStr]:
    """The API key of a cluster file, if it has one."""
    return frozenset() if llm.api_key is None else frozenset({llm.api_key})


def texts_of(workload: Workload) -> dict[str, str]:
    """The user's own files behind a workload, without secrets; shipped presets have a version."""
    own = [label for label in workload.files if not is_shipped(label)]
    texts = {}
    for label in own:
        document = read_yaml(Path(label), label, WorkloadError).document
        texts[label] = yaml.safe_dump(redact(document), sort_keys=False, allow_unicode=True)
    return texts
