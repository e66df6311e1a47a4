"""`hardware_config:`: the network a cluster is wired with, from a user's file or a shipped one."""

from pathlib import Path
from typing import Any

from projection.profiles import gpu_names, network_profile
from schemas.cluster import Network
from schemas.errors import ClusterError
from schemas.gpu import GpuProfile
from tasks.resolve.environment import place
from tasks.resolve.file_schema import as_model
from tasks.resolve.yaml_file import YamlFile, is_regular_file, read_yaml


def find_beside(named: str, beside: Path) -> Path | None:
    """The file `named`, as given from the current folder, else beside the file that names it."""
    for candidate in (_at_home(named), beside.parent / named):
        if is_regular_file(candidate):
            return candidate
    return None


def _at_home(named: str) -> Path:
    """The path `named`, `~` being the home directory where there is one."""
    try:
        return Path(named).expanduser()
    except RuntimeError:  # ~somebody, who has no home here
        return Path(named)


def resolve_network(
    named: str | None, where: str, beside: Path, gpu: GpuProfile, gpus_per_node: int
) -> tuple[Network, YamlFile | None, list[str]]:
    """The network, the user's file if there was one, and warnings.

    `named` is the path of the cluster file's `hardware_config`, looked for from the current folder,
    beside the cluster file, and by its name among the shipped ones; None takes the shipped network
    of the GPU. Raises ClusterError when it is nowhere or wrong.
    """
    if named is None:
        if gpu.name not in gpu_names():
            raise ClusterError(f"{where}: must be set: no network ships for {gpu.name}")
        return network_profile(gpu.name, gpus_per_node), None, []
    found = find_beside(named, beside)
    if found is None:
        stem = Path(named).stem.lower()
        if stem not in gpu_names():
            raise ClusterError(
                f"{where}: no such file {named!r:.80}, here, beside the cluster file or among the"
                f" shipped ones ({', '.join(gpu_names())})"
            )
        notices = []
        if stem != gpu.name:
            notices.append(f"{where}: the network of {stem} around GPUs of {gpu.name}")
        return network_profile(stem, gpus_per_node), None, notices
    file = read_yaml(found, str(found), ClusterError)
    network, notices = _from_file(file, gpu, gpus_per_node)
    return network, file, notices


def _from_file(file: YamlFile, gpu: GpuProfile, gpus_per_node: int) -> tuple[Network, list[str]]:
    """The network of a user's hardware file; what it leaves out is the shipped network's."""
    section: Any = file.document.get("hardware_config")
    if not isinstance(section, dict):
        raise ClusterError(f"{file.label}: expected a mapping under hardware_config")
    for key in file.document:
        if key != "hardware_config":
            raise ClusterError(
                f"{place(file, (key,))}: unknown key; everything stands under hardware_config"
            )
    given = {key: value for key, value in section.items() if value is not None}
    missing = [key for key in Network.model_fields if key not in given]
    values: dict[str, Any] = dict(given)
    notices = []
    if missing:
        if gpu.name not in gpu_names():
            raise ClusterError(
                f"{file.label}: hardware_config lacks {', '.join(missing)}, and no network ships"
                f" for {gpu.name}"
            )
        shipped = network_profile(gpu.name, gpus_per_node).model_dump()
        values = {key: shipped[key] for key in missing} | given
        notices.append(f"{file.label}: {', '.join(missing)}: not given, taken from {gpu.name}'s")
    network = as_model(Network, values, file, ("hardware_config",))
    _check_sizes(network, file, gpus_per_node)
    return network, notices


def _check_sizes(network: Network, file: YamlFile, gpus_per_node: int) -> None:
    where = place(file, ("hardware_config", "node_size"))
    if network.node_size < gpus_per_node:
        raise ClusterError(
            f"{where}: {network.node_size} GPUs, but the cluster has {gpus_per_node} per node"
        )
    if network.pod_size < network.node_size:
        raise ClusterError(
            f"{place(file, ('hardware_config', 'pod_size'))}: {network.pod_size} GPUs are fewer"
            f" than a node's {network.node_size}"
        )
