"""A target-cluster file, and the hardware and profile files it names, as a `ResolvedCluster`."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import yaml
from pydantic import Field

from projection.calibration import calibration_from
from projection.profiles import at_clock, gpu_profile
from schemas.calibration import Calibration
from schemas.cluster import Cluster, MemoryOverheads, MoeImbalance, Network, Stack
from schemas.cluster_file import TargetCluster, TargetClusterFile
from schemas.errors import ClusterError
from schemas.gpu import GpuProfile
from schemas.legality import AxisValue
from schemas.model import FrozenModel
from schemas.search import BenchmarkHost, Budget, LlmSettings, SearchSpec
from tasks.resolve.environment import place, search_dotenv, substitute
from tasks.resolve.file_schema import as_model, shown
from tasks.resolve.hardware_file import find_beside, resolve_network
from tasks.resolve.host_software import Host, software_of
from tasks.resolve.pinned import pinned_knobs
from tasks.resolve.redaction import redact
from tasks.resolve.stack import declared_stack, wants_detection, with_detected
from tasks.resolve.yaml_file import KeyPath, YamlFile, read_yaml

_LARGEST_WORLD: Final = 10**6
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class ResolvedCluster(FrozenModel):
    """Everything a target-cluster file says. `files` holds what was read, without secrets."""

    cluster: Cluster
    search: SearchSpec
    benchmark: BenchmarkHost
    llm: LlmSettings
    warnings: tuple[str, ...] = ()
    files: dict[str, str] = Field(default_factory=dict)
    stack_origin: dict[str, str] = Field(default_factory=dict)
    """Where each entry of the cluster's stack came from."""
    stack_place: str = ""
    """Where the stack stands in the file, or would."""
    read_from: dict[str, str] = Field(default_factory=dict)
    """The user's own file of `gpu`, `network` and `calibration`, where one was read."""


@dataclass(frozen=True, slots=True)
class _Reading:
    """The cluster file as parsed, and as its model."""

    path: Path
    file: YamlFile
    values: TargetClusterFile

    def where(self, *path: str) -> str:
        return place(self.file, path)

    def shown(self, *path: str) -> str:
        """The value at `path` as a message quotes it."""
        value: Any = self.values
        for key in path:
            value = getattr(value, key)
        return shown(self.file, path, value)

    def sets(self, *path: str) -> bool:
        """Whether the file sets the key at `path` to something."""
        value: Any = self.file.document
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value is not None


def resolve_cluster(path: Path, *, env: Mapping[str, str] | None = None) -> ResolvedCluster:
    """Resolve the target-cluster file at `path`.

    `env` is the environment, the process's when None; `.env` files of the current folder, its
    repository and the home directory stand below it. Raises ClusterError in one line with file,
    line and key path for whatever is wrong or unknown.
    """
    path = Path(path)
    environment = search_dotenv(os.environ if env is None else env, Path.cwd())
    file = read_yaml(path, str(path), ClusterError)
    document = substitute(file, environment, ClusterError)
    reading = _Reading(path, file, as_model(TargetClusterFile, document, file))
    gpu, files, notices = _gpu(reading)
    target = reading.values.target_cluster
    _check_target(reading, target)
    network, hardware, more = _network(reading, target, gpu)
    calibration, fitted = _calibration(reading, gpu)
    read = {"gpu": next(iter(files), None), "network": hardware, "calibration": fitted}
    own = {name: one for name, one in read.items() if one is not None}
    capacity, capacity_notices = _hbm_capacity(reading, gpu)
    stack = declared_stack(_either(reading, "stack") or Stack())
    cluster = Cluster(
        name=target.name,
        num_nodes=target.num_nodes,
        gpus_per_node=target.gpus_per_node,
        gpu=gpu,
        network=network,
        hbm_capacity_gb=capacity,
        memory_safety_margin=reading.values.optimization.memory_safety_margin,
        stack=stack.stack,
        moe_imbalance=_imbalance(_either(reading, "moe_imbalance")),
        memory_overheads=_either(reading, "memory_overheads") or MemoryOverheads(),
        placement=_either(reading, "placement") or Cluster.model_fields["placement"].default,
        calibration=calibration,
        gpu_hour_price=target.gpu_hour_price,
        gpu_power_w=target.gpu_power_w,
    )
    return ResolvedCluster(
        cluster=cluster,
        search=_search(reading),
        benchmark=reading.values.available_for_benchmark,
        llm=_llm(reading, environment),
        warnings=(*notices, *more, *capacity_notices),
        files={one.label: _without_secrets(one) for one in (file, *own.values())},
        stack_origin=dict(stack.origin),
        stack_place=reading.where(*_stack_key(reading)),
        read_from={name: one.label for name, one in own.items()},
    )


def on_this_host(
    resolved: ResolvedCluster,
    framework: str,
    *,
    env: Mapping[str, str] | None = None,
    detect: bool = False,
) -> ResolvedCluster:
    """`resolved` with what its stack leaves open as this machine has it, if the file says that this
    is the benchmark host (`available_for_benchmark.has_gpu`) or `detect` does as if.

    `framework` is the workload's; `env` the environment with ROCM_PATH, the process's when None.
    """
    is_host = detect or resolved.benchmark.has_gpu
    declared = resolved.cluster.stack
    if not wants_detection(declared, is_host=is_host):
        return resolved
    vendor = resolved.cluster.gpu.vendor
    found = software_of(Host.here(os.environ if env is None else env), vendor, framework)
    known = with_detected(declared, found, resolved.stack_place, vendor, is_host=is_host)
    return resolved.model_copy(
        update={
            "cluster": resolved.cluster.model_copy(update={"stack": known.stack}),
            "stack_origin": dict(known.origin),
            "warnings": (*resolved.warnings, *known.warnings),
        }
    )


def _stack_key(reading: _Reading) -> KeyPath:
    """Where the file's stack stands."""
    inside = ("target_cluster", "stack")
    return inside if reading.sets(*inside) else ("stack",)


def _gpu(reading: _Reading) -> tuple[GpuProfile, list[YamlFile], list[str]]:
    """The GPU at the clock asked for, the profile file that was read, and warnings."""
    target = reading.values.target_cluster
    key: KeyPath = ("target_cluster", "gpu_arch")
    files: list[YamlFile] = []
    text = None
    if target.gpu_profile is not None:
        key = ("target_cluster", "gpu_profile")
        found = find_beside(target.gpu_profile, reading.path)
        if found is None:
            raise ClusterError(f"{reading.where(*key)}: no such file {reading.shown(*key)}")
        files.append(read_yaml(found, str(found), ClusterError))
        text = yaml.safe_dump(files[0].document)
    name = target.gpu_arch
    if text is not None and not reading.sets("target_cluster", "gpu_arch"):
        name = ""
    try:
        gpu = gpu_profile(name, text)
    except ClusterError as reason:
        said = str(reason).replace(f"{name!r:.80}", reading.shown("target_cluster", "gpu_arch"))
        raise ClusterError(f"{reading.where(*key)}: {said}", hint=reason.hint) from reason
    if target.gpu_clock_mhz is None:
        return gpu, files, []
    notices = []
    if target.gpu_clock_mhz > gpu.clock_mhz:
        notices.append(
            f"{reading.where('target_cluster', 'gpu_clock_mhz')}: {target.gpu_clock_mhz:g} MHz is"
            f" above {gpu.name}'s {gpu.clock_mhz:g}"
        )
    return at_clock(gpu, target.gpu_clock_mhz), files, notices


def _calibration(
    reading: _Reading, gpu: GpuProfile
) -> tuple[Calibration | Literal["none"] | None, YamlFile | None]:
    """The calibration the file names, and its file; None: the shipped one, if any, is in force."""
    named = reading.values.target_cluster.calibration
    if named is None:
        return None, None
    if named == "none":
        return "none", None
    where = reading.where("target_cluster", "calibration")
    found = find_beside(named, reading.path)
    if found is None:
        raise ClusterError(
            f"{where}: no such file {reading.shown('target_cluster', 'calibration')}",
            hint="fit one with `refold calibrate`, or say none for published rates alone",
        )
    file = read_yaml(found, str(found), ClusterError)
    calibration = calibration_from(yaml.safe_dump(file.document), str(found))
    if calibration.gpu != gpu.name:
        raise ClusterError(f"{where}: it is of {calibration.gpu}, the GPU is {gpu.name}")
    return calibration, file


def _hbm_capacity(reading: _Reading, gpu: GpuProfile) -> tuple[float, list[str]]:
    """Capacity for the cap in 2^30 bytes, and a warning where it is not the GPU's own."""
    key = ("optimization", "hbm_capacity_gb")
    stated = reading.values.optimization.hbm_capacity_gb
    nameplate = gpu.hbm_capacity_gb
    if reading.sets(*key):
        if stated > nameplate:
            more = f"{stated:g} is more than the {nameplate:g} of {gpu.name}"
            return stated, [f"{reading.where(*key)}: {more}; usable memory still limits a trial"]
        return stated, []
    label = f"{reading.file.label}: optimization.hbm_capacity_gb"
    if nameplate > stated:
        return stated, [f"{label}: not set, so {stated:g} is used; {gpu.name} has {nameplate:g}"]
    if nameplate < stated:
        return nameplate, [f"{label}: not set, so {gpu.name}'s {nameplate:g} is used"]
    return stated, []


def _either(reading: _Reading, key: str, section: str = "target_cluster") -> Any:
    """The value of a key that may stand at the top or in its section, not in both."""
    if reading.sets(key) and reading.sets(section, key):
        raise ClusterError(f"{reading.where(key)}: also set as {section}.{key}; keep one")
    if reading.sets(key):
        return getattr(reading.values, key)
    return getattr(getattr(reading.values, section), key)


def _imbalance(value: MoeImbalance | float | None) -> MoeImbalance | None:
    """One number is both ratios."""
    if isinstance(value, int | float):
        return MoeImbalance(layer=value, pooled=value)
    return value


def _network(
    reading: _Reading, target: TargetCluster, gpu: GpuProfile
) -> tuple[Network, YamlFile | None, list[str]]:
    """The network, the user's file if there was one, and warnings."""
    where = reading.where("target_cluster", "hardware_config")
    try:
        return resolve_network(
            target.hardware_config, where, reading.path, gpu, target.gpus_per_node
        )
    except ClusterError as reason:
        if str(reason).startswith("gpus_per_node"):
            nodes = reading.where("target_cluster", "gpus_per_node")
            raise ClusterError(f"{nodes}: {reason}", hint=reason.hint) from reason
        shown_path = reading.shown("target_cluster", "hardware_config")
        said = str(reason).replace(f"{target.hardware_config!r:.80}", shown_path)
        raise ClusterError(said, hint=reason.hint) from reason


def _check_target(reading: _Reading, target: TargetCluster) -> None:
    """Refuse a size no cluster has, and a name that could not name a folder."""
    world = target.num_nodes * target.gpus_per_node
    if world > _LARGEST_WORLD:
        raise ClusterError(
            f"{reading.where('target_cluster', 'num_nodes')}: num_nodes·gpus_per_node ="
            f" {target.num_nodes}·{target.gpus_per_node} = {world} GPUs; at most {_LARGEST_WORLD}"
        )
    if not _NAME.fullmatch(target.name):
        raise ClusterError(
            f"{reading.where('target_cluster', 'name')}: a run's folder is named after it, so it is"
            f" letters, digits, '.', '_' and '-', not {reading.shown('target_cluster', 'name')}"
        )


def _search(reading: _Reading) -> SearchSpec:
    optimization = reading.values.optimization
    budget = Budget(**optimization.budget.model_dump(exclude_none=True))
    return SearchSpec(
        objective=optimization.objective,
        budget=budget,
        axes=optimization.axes,
        pinned=_pinned(reading),
        max_gbs=optimization.max_gbs,
        prompt_extras=reading.values.agent.prompt_extras,
    )


def _pinned(reading: _Reading) -> dict[str, AxisValue]:
    """Pinned knobs, by the names of `TrialConfig` and with values of its types."""
    at: KeyPath = ("pinned",) if reading.sets("pinned") else ("optimization", "pinned")
    return pinned_knobs(_either(reading, "pinned", "optimization"), reading.file, at)


def _llm(reading: _Reading, env: Mapping[str, str]) -> LlmSettings:
    """The file's settings under the environment's `LLM_MODEL`."""
    agent = reading.values.agent
    update: dict[str, Any] = {}
    if env.get("LLM_MODEL"):
        update["model"] = env["LLM_MODEL"]
    if agent.driver is not None:
        update["driver"] = agent.driver
    return agent.llm.model_copy(update=update)


def _without_secrets(file: YamlFile) -> str:
    """The file's settings as YAML, secrets replaced; comments, which may hold some, are dropped."""
    text: str = yaml.safe_dump(redact(file.document), sort_keys=False, allow_unicode=True)
    return text
