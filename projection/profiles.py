"""The GPUs Refold knows: data-sheet profiles, their networks, and what real kernels achieve.

One file per GPU in `hardware/` (its profile and the node it ships in) and one in `calibrations/`.
An unknown name is an error that says the nearest known one; nothing is ever substituted.
"""

import difflib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

import yaml
from pydantic import ValidationError

from schemas.cluster import Network
from schemas.errors import ClusterError
from schemas.gpu import Achievable, GpuProfile
from schemas.wording import problem

_HARDWARE: Final = Path(__file__).parent / "hardware"
_CALIBRATIONS: Final = Path(__file__).parent / "calibrations"

_ALIASES: Final = {
    "a100": "a100-80g",
    "a10080gb": "a100-80g",
    "a100sxm": "a100-80g",
    "a100sxm480gb": "a100-80g",
    "a100sxm80gb": "a100-80g",
    "h100": "h100-sxm",
    "h10080gb": "h100-sxm",
    "h100sxm5": "h100-sxm",
    "h100sxm80gb": "h100-sxm",
    "h200sxm": "h200",
    "h200sxm5": "h200",
    "hgxb200": "b200",
    "b200sxm": "b200",
    "gb200nvl72": "gb200",
}
_M = TypeVar("_M", GpuProfile, Network, Achievable)
_VENDOR_WORDS: Final = ("amd", "instinct", "nvidia")


def gpu_names() -> tuple[str, ...]:
    """Names of the GPUs that ship with Refold, sorted."""
    return tuple(sorted(path.stem for path in _HARDWARE.glob("*.yaml")))


def gpu_profile(name: str, user_file_text: str | None = None) -> GpuProfile:
    """The profile called `name` (any case, usual aliases), or the one of a user's YAML text.

    A user's file holds the fields of `GpuProfile`, at the top or under `gpu:`. Its `name` must be
    `name` unless that is empty. Raises ClusterError for an unknown name, key or value.
    """
    if user_file_text is None:
        return _parse(GpuProfile, _shipped(name)["gpu"], "GPU profile")
    loaded = _load_mapping(user_file_text, "GPU profile")
    profile = _parse(GpuProfile, loaded.get("gpu", loaded), "GPU profile")
    if name and _squeeze(name) != _squeeze(profile.name):
        raise ClusterError(
            f"gpu_arch is {name!r:.80} but the GPU profile file describes {profile.name!r:.80}",
            hint="use the same name in both",
        )
    return profile


def network_profile(name: str, gpus_per_node: int | None = None) -> Network:
    """The network that GPU `name` ships in, as its hardware YAML states it.

    `gpus_per_node`, when it differs from the file's node: a box with fewer GPUs keeps its NICs per
    GPU, except where the fast fabric spans boxes (GB200 NVL72), whose domain stays whole.
    Raises ClusterError for an unknown name, or more GPUs than the node has.
    """
    shipped = _shipped(name)
    network = _parse(Network, shipped["network"], "hardware profile")
    if gpus_per_node is None or gpus_per_node == network.node_size:
        return network
    if gpus_per_node > network.node_size:
        raise ClusterError(
            f"gpus_per_node is {gpus_per_node}, but a {shipped['gpu']['name']} node has "
            f"{network.node_size}",
            hint="give a hardware_config with that node_size",
        )
    if shipped["hosts_share_fabric"]:
        return network
    if network.node_topology == "mesh":
        # The board keeps its links to all the node_size - 1 others, used or not: node_size stays.
        return network
    nics = max(1, network.nics_per_node * gpus_per_node // network.node_size)
    return network.model_copy(update={"node_size": gpus_per_node, "nics_per_node": nics})


def achievable(gpu: GpuProfile, gemm: str | None = None) -> Achievable:
    """The shipped derates of `gpu`; a user's own GPU has none, which is an error that says so.

    GEMM factors are over the model that `gemm_model(gpu, "auto")` prefers. `gemm` names the model
    in use (`GemmModel.name`), for GPUs whose file also has factors over the other one.
    """
    path = _CALIBRATIONS / f"{gpu.name}.yaml"
    if not path.is_file():
        raise ClusterError(
            f"no calibration ships for GPU {gpu.name!r}",
            hint="fit one with `refold calibrate`, or start from one of " + ", ".join(gpu_names()),
        )
    factors = {k: v for k, v in _read(path).items() if k != "tile"}
    if gemm == "tile":
        factors |= _read(path).get("tile", {})
    return _parse(Achievable, factors, f"calibration {path.name}")


def at_clock(gpu: GpuProfile, clock_mhz: float) -> GpuProfile:
    """`gpu` at another engine clock: matrix and vector peaks scale with it, HBM does not."""
    ratio = clock_mhz / gpu.clock_mhz
    return gpu.model_copy(
        update={
            "clock_mhz": clock_mhz,
            "bf16_tflops": gpu.bf16_tflops * ratio,
            "fp8_tflops": None if gpu.fp8_tflops is None else gpu.fp8_tflops * ratio,
            "vector_tflops": gpu.vector_tflops * ratio,
        }
    )


def _squeeze(name: str) -> str:
    """`name` in lower case without vendor words, spaces and punctuation."""
    lowered = name.lower()
    for word in _VENDOR_WORDS:
        lowered = lowered.replace(word, "")
    return "".join(c for c in lowered if c.isalnum())


def _shipped(name: str) -> Mapping[str, Any]:
    """The hardware YAML of `name`."""
    names = gpu_names()
    by_squeezed = {_squeeze(n): n for n in names} | _ALIASES
    squeezed = _squeeze(name)[:80]
    found = by_squeezed.get(squeezed)
    if found is None:
        near = difflib.get_close_matches(squeezed, by_squeezed, n=1, cutoff=0.5)
        hint = f"did you mean {by_squeezed[near[0]]!r}? " if near else ""
        raise ClusterError(
            f"unknown GPU {name!r:.80}",
            hint=f"{hint}known: {', '.join(names)}, or give a gpu_profile",
        )
    return _read(_HARDWARE / f"{found}.yaml")


@cache
def _read(path: Path) -> Mapping[str, Any]:
    """A shipped file, read and parsed once."""
    return MappingProxyType(_load_mapping(path.read_text(encoding="utf-8"), path.name))


def _load_mapping(text: str, what: str) -> dict[str, Any]:
    """`text` as a YAML mapping."""
    try:
        loaded = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ClusterError(f"{what} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(loaded, dict):
        raise ClusterError(f"{what} must be a mapping of keys to values")
    return loaded


def _parse(model: type[_M], data: object, what: str) -> _M:
    """`data` as `model`; the first mistake as one line with the nearest right key."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        # A misspelled key is also a missing one; the misspelling is what helps.
        first = min(error.errors(), key=lambda e: e["type"] != "extra_forbidden")
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            near = difflib.get_close_matches(key, model.model_fields, n=1)
            hint = f"did you mean {near[0]!r}?" if near else None
            raise ClusterError(f"{what}: unknown key {key!r}", hint=hint) from error
        raise ClusterError(f"{what}: {key or 'value'}: {problem(first)}") from error
