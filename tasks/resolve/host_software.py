"""What software a host has, from files and package metadata: nothing is imported, run or asked.

AMD: ROCm from `.info/version` below ROCM_PATH; hipBLASLt and RCCL from where torch loads them: its
own wheel, the wheels of the ROCm SDK, else the headers and file names below ROCM_PATH. NVIDIA: the
wheels torch depends on, else CUDA's `version.json` and NCCL's header. torch and the framework: the
packages installed for the Python that runs Refold.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageMetadata, distributions
from pathlib import Path
from typing import Any, Final, NamedTuple

_MOST: Final = 1 << 20
"""Bytes of a header or version file that are read."""
_VERSION: Final = re.compile(r"[0-9][\w.+~-]{0,60}")
_HIPBLASLT: Final = re.compile(
    r"^\s*#\s*define\s+hipblaslt_?version_?(major|minor|patch|tweak)\s+(\S+)", re.I | re.M
)
_NCCL: Final = re.compile(r"^\s*#\s*define\s+NCCL_(MAJOR|MINOR|PATCH)\s+(\d+)", re.M)
_LIBRARY_VERSION: Final = re.compile(r"\.so\.([0-9][0-9.]*)$")
_CUDA_WHEELS: Final = ("-cu13", "", "-cu12", "-cu11")
"""How names of NVIDIA's wheels end, the newest first."""
_SDK_LIBRARIES: Final = "_rocm_sdk_libraries"
FRAMEWORK_PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "megatron": ("primus", "megatron-core"),
    "torchtitan": ("primus", "torchtitan"),
}
"""Packages a framework of a workload file is installed as."""
OF_VENDOR: Final[Mapping[str, tuple[str, ...]]] = {
    "amd": ("rocm", "hipblaslt", "rccl", "framework", "torch"),
    "nvidia": ("cuda", "cublas", "nccl", "framework", "torch"),
}
"""Entries of a stack that a host with GPUs of a vendor has."""


class Found(NamedTuple):
    """A version, and the file or package that says so."""

    version: str
    where: str


@dataclass(frozen=True, slots=True)
class Host:
    """Where to look."""

    rocm: Path
    cuda: Path
    system: Path
    """Below which distributions put headers and libraries."""
    packages: tuple[str, ...]
    """Folders with installed Python packages."""

    @classmethod
    def here(cls, env: Mapping[str, str]) -> "Host":
        """This machine, by ROCM_PATH and CUDA_HOME or CUDA_PATH in `env`."""
        return cls(
            rocm=Path(env.get("ROCM_PATH") or "/opt/rocm"),
            cuda=Path(env.get("CUDA_HOME") or env.get("CUDA_PATH") or "/usr/local/cuda"),
            system=Path("/usr"),
            packages=tuple(sys.path),
        )


def software_of(host: Host, vendor: str, framework: str) -> dict[str, Found]:
    """What is found of the stack on `host`, which has GPUs of `vendor`; what is not is absent."""
    torch = _package(host, "torch")
    found: dict[str, Found | None] = {
        "torch": _version_of(torch),
        "framework": _framework(host, framework),
    }
    if vendor == "nvidia":
        found |= {
            "cuda": _cuda(host, torch),
            "cublas": _wheel(host, "nvidia-cublas") or _in_version_json(host, "libcublas"),
            "nccl": _wheel(host, "nvidia-nccl") or _nccl(host),
        }
    else:
        found |= {
            "rocm": _rocm(host, torch),
            "hipblaslt": _amd_library(host, torch, "hipblaslt"),
            "rccl": _amd_library(host, torch, "rccl"),
        }
    return {name: value for name, value in found.items() if value is not None}


def _rocm(host: Host, torch: Distribution | None) -> Found | None:
    for root in (host.rocm, host.rocm / "core", *_in_packages(host, "_rocm_sdk_core")):
        path = root / ".info" / "version"
        if (version := _VERSION.fullmatch(_text(path).strip())) is not None:
            return Found(version[0], str(path))
    return _local_version(torch, "rocm")


def _amd_library(host: Host, torch: Distribution | None, name: str) -> Found | None:
    """The one torch loads: its own, the ROCm SDK's, or that of the installation."""
    in_wheel = _in_torch(torch, name) or _in_sdk(host, name)
    if in_wheel is not None:
        return in_wheel
    for root in (host.rocm, host.rocm / "core"):
        found = _by_header(root, name) or _by_file_name(root, name)
        if found is not None:
            return found
    return None


def _in_torch(torch: Distribution | None, name: str) -> Found | None:
    """A library inside torch's wheel, which states no version: its hash in the wheel's list."""
    version = _version_of(torch)
    if torch is None or version is None:
        return None
    listed = re.search(
        rf"^(torch/lib/lib{name}\.so[\d.]*),sha256=([\w-]{{12}})",
        torch.read_text("RECORD") or "",
        re.M,
    )
    if listed is None:
        return None
    return Found(f"in torch {version.version}, sha256 {listed[2]}", f"torch's RECORD, {listed[1]}")


def _in_sdk(host: Host, name: str) -> Found | None:
    """A library of the ROCm SDK's wheels, whose version is theirs."""
    for folder in _in_packages(host, f"{_SDK_LIBRARIES}*"):
        library = next(iter(sorted((folder / "lib").glob(f"lib{name}.so*"))), None)
        package = folder.name.lstrip("_").replace("_", "-")
        found = _version_of(_package(host, package))
        if library is not None and found is not None:
            return Found(f"in {package} {found.version}", str(library))
    return None


def _by_header(root: Path, name: str) -> Found | None:
    header, pattern = {
        "hipblaslt": ("hipblaslt-version.h", _HIPBLASLT),
        "rccl": ("rccl.h", _NCCL),
        "nccl": ("nccl.h", _NCCL),
    }[name]
    for path in (root / "include" / name / header, root / "include" / header):
        parts = {part.lower(): value for part, value in pattern.findall(_text(path))}
        numbers = [parts.get(part, "") for part in ("major", "minor", "patch")]
        if all(number.isdigit() for number in numbers):
            build = parts.get("tweak", "")
            version = ".".join(numbers) + (f"-{build}" if build else "")
            if _VERSION.fullmatch(version):
                return Found(version, str(path))
    return None


def _by_file_name(root: Path, name: str) -> Found | None:
    """The longest version in the names of a library: `librccl.so.1.0.60403`."""
    versions = [
        (len(match[1]), match[1], path)
        for folder in ("lib", "lib64", "lib/x86_64-linux-gnu")
        for path in sorted((root / folder).glob(f"lib{name}.so.*"))
        if (match := _LIBRARY_VERSION.search(path.name)) is not None
    ]
    if not versions:
        return None
    _, version, path = max(versions)
    return Found(version, str(path))


def _cuda(host: Host, torch: Distribution | None) -> Found | None:
    return (
        _wheel(host, "nvidia-cuda-runtime")
        or _in_version_json(host, "cuda")
        or _local_version(torch, "cu")
    )


def _nccl(host: Host) -> Found | None:
    for root in (host.system, host.cuda):
        found = _by_header(root, "nccl") or _by_file_name(root, "nccl")
        if found is not None:
            return found
    return None


def _in_version_json(host: Host, key: str) -> Found | None:
    path = host.cuda / "version.json"
    try:
        told: Any = json.loads(_text(path) or "null")
    except (ValueError, RecursionError):  # not NVIDIA's file: it says nothing
        return None
    entry = told.get(key) if isinstance(told, dict) else None
    version = entry.get("version") if isinstance(entry, dict) else None
    if not isinstance(version, str) or _VERSION.fullmatch(version) is None:
        return None
    return Found(version, f"{path}, {key}")


def _local_version(torch: Distribution | None, kind: str) -> Found | None:
    """What torch says it was built for: 6.4 of `2.9.0+rocm6.4`, 12.6 of `2.9.0+cu126`."""
    version = _version_of(torch)
    built = re.search(rf"\+{kind}([0-9.]*[0-9])", version.version) if version else None
    if version is None or built is None:
        return None
    number = built[1] if "." in built[1] else f"{built[1][:-1]}.{built[1][-1]}"
    return Found(number.strip("."), f"torch {version.version}")


def _framework(host: Host, framework: str) -> Found | None:
    """Every package the framework is made of that is installed, with its version."""
    found = [
        (name, version.version)
        for name in FRAMEWORK_PACKAGES.get(framework, (framework,))
        if (version := _version_of(_package(host, name))) is not None
    ]
    if not found:
        return None
    names = ", ".join(name for name, _ in found)
    said = ", ".join(f"{name} {version}" for name, version in found)
    return Found(said, f"package metadata of {names}")


def _wheel(host: Host, stem: str) -> Found | None:
    """One of NVIDIA's wheels, whichever CUDA it is for."""
    found = (_version_of(_package(host, f"{stem}{suffix}")) for suffix in _CUDA_WHEELS)
    return next((version for version in found if version is not None), None)


def _package(host: Host, name: str) -> Distribution | None:
    return next(iter(distributions(name=name, path=list(host.packages))), None)


def _version_of(package: Distribution | None) -> Found | None:
    if package is None:
        return None
    told: PackageMetadata | None = package.metadata  # None where newer Pythons find no file
    if told is None or "Name" not in told or "Version" not in told:
        return None
    if not _VERSION.fullmatch(told["Version"]):
        return None
    return Found(told["Version"], f"package metadata of {told['Name']}")


def _in_packages(host: Host, pattern: str) -> Iterator[Path]:
    """Folders of that name among the installed packages."""
    for folder in host.packages:
        yield from sorted(_folders(Path(folder).glob(pattern)))


def _folders(paths: Iterable[Path]) -> Iterator[Path]:
    return (path for path in paths if path.is_dir())


def _text(path: Path) -> str:
    """The beginning of a file as text; nothing where it cannot be read."""
    try:
        with path.open("rb") as stream:
            return stream.read(_MOST).decode("utf-8", errors="replace")
    except (OSError, ValueError):
        return ""
