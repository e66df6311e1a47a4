"""A shipped model preset as an `Architecture`, without a workload around it."""

from collections.abc import Mapping
from typing import Any

from schemas.architecture import Architecture
from tasks.resolve.architecture import architecture_of
from tasks.resolve.chain import ChainLoader
from tasks.resolve.effective import framework_defaults
from tasks.resolve.merging import Document
from tasks.resolve.settings import Settings
from tasks.resolve.shipped import PRESETS
from tasks.resolve.sources import PresetSearch, shipped


def preset_names() -> tuple[str, ...]:
    """Names of the shipped presets, sorted."""
    return tuple(sorted(path.stem for path in (PRESETS / "models").glob("*.yaml")))


def preset_architecture(name: str, changes: Mapping[str, Any] | None = None) -> Architecture:
    """The architecture of the shipped preset `name`, with `changes` to its Megatron settings.

    Raises:
        WorkloadError: no such preset ships, or the settings describe no transformer.
    """
    source = shipped(PRESETS / "models" / f"{name}.yaml")
    loader = ChainLoader(PresetSearch(source), {})
    preset = loader.load(source, "models").over(framework_defaults(loader))
    return architecture_of(Settings(Document(dict(changes or {})).over(preset), name), name)
