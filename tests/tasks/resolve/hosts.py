"""Hosts to detect software on: real trees of ROCm and CUDA, and installed packages, as files."""

from pathlib import Path

RCCL_HEADER = """\
#define NCCL_MAJOR 2
#define NCCL_MINOR 22
#define NCCL_PATCH 3
#define NCCL_SUFFIX ""

#define NCCL_VERSION_CODE 22203
"""
HIPBLASLT_HEADER = """\
#ifndef HIPBLASLT_VERSION_H_
#define HIPBLASLT_VERSION_H_
#define HIPBLASLT_VERSION_MAJOR 0
#define HIPBLASLT_VERSION_MINOR 12
#define HIPBLASLT_VERSION_PATCH 1
#define HIPBLASLT_VERSION_TWEAK 4d8b2a1f
#endif
"""


def written(path: Path, text: str = "") -> Path:
    """`path` with `text`, its folders made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def rocm_tree(root: Path, version: str = "6.4.1-83") -> Path:
    """An installation of ROCm as its packages lay it out."""
    written(root / ".info/version", f"{version}\n")
    written(root / "include/hipblaslt/hipblaslt-version.h", HIPBLASLT_HEADER)
    written(root / "include/rccl/rccl.h", RCCL_HEADER)
    for library, so in (("rccl", "1.0.60401"), ("hipblaslt", "0.12.60401")):
        file = written(root / "lib" / f"lib{library}.so.{so}")
        (root / "lib" / f"lib{library}.so").symlink_to(file.name)
    return root


def installed(site: Path, name: str, version: str, record: str = "") -> Path:
    """A package's metadata folder in `site`; returns `site`."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    written(folder / "METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    written(folder / "RECORD", record)
    return site
