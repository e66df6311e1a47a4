"""The targets file of a nightly re-tuning: which workloads, on which clusters, how and when."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from schemas.model import FrozenModel
from schemas.search import MemoryRegime, Mode

DEFAULT_CRON = "0 2 * * *"


class Schedule(FrozenModel):
    """`schedule:`. When a night begins: `cron`, five fields, read in `timezone` (IANA)."""

    cron: str = Field(default=DEFAULT_CRON, min_length=1, max_length=200)
    timezone: str = Field(default="UTC", min_length=1, max_length=80)


class TargetSettings(FrozenModel):
    """How a target is re-tuned: `defaults:` for all, and each target's own. None: the default."""

    model_path: tuple[Path, ...] | None = None
    """Folders to look for model presets in, before the shipped ones."""
    mode: Mode | None = None
    gemm_backend: Literal["auto", "origami", "tile"] | None = None
    memory_regime: MemoryRegime | None = None
    seed_budget: int | None = Field(default=None, ge=1, le=10**6)
    seed_only: bool | None = None
    """No rounds of a language model. Default: false."""
    llm: str | None = None
    """The language model to ask; default: the configured one, if any."""
    top_k: int | None = Field(default=None, ge=1, le=10**6)
    """Of the last run's trials, the best this many are scored again first. Default: 5."""
    regression_percent: float | None = Field(default=None, ge=0, le=100)
    """Fewer tokens/s/GPU than the recipe before, by more than this, is a regression. Default: 1."""


class TargetEntry(TargetSettings):
    """One of `targets:`. Paths are relative to the targets file."""

    workload: Path
    target_cluster: Path
    name: str | None = Field(default=None, min_length=1, max_length=80)
    """Default: the two files' names."""


class TargetsFile(FrozenModel):
    """The whole file."""

    name: str | None = Field(default=None, min_length=1, max_length=80)
    """Default: the file's own name. Nights of one name follow each other."""
    schedule: Schedule = Schedule()
    defaults: TargetSettings = TargetSettings()
    targets: tuple[TargetEntry, ...] = Field(min_length=1)


class Target(FrozenModel):
    """A target with its defaults applied and its paths as a search takes them."""

    name: str
    workload: Path
    target_cluster: Path
    model_path: tuple[Path, ...] = ()
    mode: Mode = "full"
    gemm_backend: Literal["auto", "origami", "tile"] = "auto"
    memory_regime: MemoryRegime = "config"
    seed_budget: int | None = None
    seed_only: bool = False
    llm: str | None = None
    top_k: int = 5
    regression_percent: float = 1.0
