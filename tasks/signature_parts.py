"""A signature taken apart for people: each part, its value, and the file or rule it came from."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from projection.signature import CLUSTER_IDENTITY, WORKLOAD_IDENTITY
from schemas.model import FrozenModel
from tasks.inputs import Inputs

Section = Literal["model", "cluster", "stack"]
SHIPPED_HERE = "shipped with this Refold"
THIS_REFOLD = "this Refold"


@dataclass(frozen=True, slots=True)
class Part:
    """One thing a score depends on."""

    section: Section
    name: str
    value: Any
    origin: str
    is_default: bool = False
    """Whether it is what it would be if no file said anything of it."""


def parts_of(inputs: Inputs, cluster_file: Path) -> list[Part]:
    """Every part of the signature of `inputs`, section by section.

    `cluster_file` is the one `inputs` were resolved from, among `inputs.files`.
    """
    text = inputs.files.get(str(cluster_file), "")
    return [
        *_model_parts(inputs),
        *_cluster_parts(inputs, yaml.safe_load(text) or {}, str(cluster_file)),
        *_stack_parts(inputs),
    ]


def _model_parts(inputs: Inputs) -> Iterator[Part]:
    workload = inputs.workload
    module = workload.document.get("modules", {}).get(workload.trainer, {})
    preset = module.get("model") if isinstance(module, dict) else None
    own = workload.source
    others = [label for label in workload.files if label != own]
    named = next((label for label in others if Path(label).stem == _stem(preset)), preset)
    of_model = f"{named}, under {own}" if named else own
    for name, value, default in _leaves(workload.architecture, frozenset({"name"})):
        yield Part("model", f"architecture.{name}", value, of_model, default)
    for name, value, default in _leaves(workload, WORKLOAD_IDENTITY):
        yield Part("model", name, value, f"{own}, over its presets", default)


def _cluster_parts(inputs: Inputs, document: Mapping[str, Any], own: str) -> Iterator[Part]:
    cluster, files = inputs.cluster, inputs.read_from
    shipped = {"gpu": f"{cluster.gpu.name}'s profile", "network": f"{cluster.gpu.name}'s network"}
    said = {**document, **(document.get("optimization") or {})}
    said |= document.get("target_cluster") or {}
    clock = said.get("gpu_clock_mhz")
    for name, value, default in _leaves(cluster, CLUSTER_IDENTITY - {"gpu"}):
        section = name.partition(".")[0]
        if name == "gpu.clock_mhz" and clock is not None:
            origin = f"gpu_clock_mhz in {own}"
        elif section in shipped:
            origin = files.get(section) or f"{shipped[section]}, {SHIPPED_HERE}"
        else:
            origin = own if said.get(section) is not None else "no file (a default)"
        if not name.startswith("gpu.sources"):
            yield Part("cluster", name, value, origin, default and section not in said)


def _stack_parts(inputs: Inputs) -> Iterator[Part]:
    signature = inputs.signature
    own = {
        "projection": THIS_REFOLD,
        "gemm": _gemm_origin(inputs),
        "calibration": _calibration_origin(inputs),
    }
    for name, value in signature.stack.items():
        origin = own.get(name) or signature.origin[name]
        yield Part("stack", name, value, origin)


def _gemm_origin(inputs: Inputs) -> str:
    asked = inputs.search.gemm_backend
    if asked != "auto":
        return f"--gemm-backend {asked}"
    if inputs.gemm.name == "origami":
        return "auto: Origami is installed"
    why = "Origami is not installed" if inputs.lesser_paths else "not an AMD GPU"
    return f"auto: {why}"


def _calibration_origin(inputs: Inputs) -> str:
    calibration = inputs.cluster.calibration
    if calibration == "none":
        return "calibration: none, so published rates"
    return inputs.read_from.get("calibration") or SHIPPED_HERE


def _leaves(model: FrozenModel, left_out: frozenset[str]) -> Iterator[tuple[str, Any, bool]]:
    """Name, value and whether it is the default, of every field, and of those of models in it."""
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if name in left_out:
            continue
        if isinstance(value, FrozenModel):
            for below, leaf, default in _leaves(value, frozenset()):
                yield f"{name}.{below}", leaf, default
        else:
            plain = model.model_dump(mode="json", include={name})[name]
            yield name, plain, not field.is_required() and value == field.default


def _stem(preset: Any) -> str | None:
    """The file name of a preset without folder and suffix, as files of presets are compared."""
    return Path(preset).stem if isinstance(preset, str) else None
