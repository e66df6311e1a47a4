"""A measured row as what the oracle takes: a workload, a cluster and the trial that ran."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from projection.legality import settled
from projection.profiles import gpu_names, gpu_profile, network_profile
from schemas.cluster import Cluster
from schemas.measured import (
    NETWORK_SETTINGS,
    PRECISION_SETTINGS,
    TRIAL_SETTINGS,
    WORKLOAD_SETTINGS,
    MeasuredRow,
)
from schemas.trial import NormalTrial
from schemas.workload import Precision, Workload

MODELLED_PRECISIONS = ("bf16", "fp16", "fp8")


@dataclass(frozen=True, slots=True)
class Case:
    """What a row ran, in the oracle's terms."""

    workload: Workload
    cluster: Cluster

    @property
    def trial(self) -> NormalTrial:
        """The configuration that was measured."""
        return self.workload.baseline


def left_out(row: MeasuredRow) -> str | None:
    """Why `row` cannot be compared at all, in words that rows share; None: it can."""
    if row.not_comparable is not None:
        return row.not_comparable
    if row.iteration_ms is None and row.tokens_per_s_per_gpu is None:
        return "neither tokens/s nor step time published"
    if row.gpu not in _shipped_gpus():
        return f"no profile ships for its GPU ({row.gpu})"
    if row.precision not in MODELLED_PRECISIONS:
        return f"precision not modelled ({row.precision})"
    if row.architecture is None:
        return "architecture not stated"
    missing = [name for name in ("seq_length", "mbs", "gbs") if row.settings().get(name) is None]
    if missing:
        return f"{', '.join(missing)} neither stated nor in a recipe"
    stages = row.settings()["pp"] * row.settings()["vpp"]
    if stages > row.architecture.num_layers + 2:  # the embedding and the head may stand alone
        return f"{stages} stages of {row.architecture.num_layers} layers"
    if row.world_size > row.gpus_per_node and row.world_size % row.gpus_per_node:
        return "its GPUs are no whole number of nodes"
    return None


@cache
def _shipped_gpus() -> frozenset[str]:
    return frozenset(gpu_names())


def case_of(row: MeasuredRow, changes: Mapping[str, Any] | None = None) -> Case:
    """The case of `row`, with `changes` to what is assumed of it.

    `row` must be one that `left_out` leaves in.
    """
    assert row.architecture is not None, row.id
    settings = row.settings(changes)
    per_node = min(row.gpus_per_node, row.world_size)
    network = network_profile(row.gpu, per_node).model_copy(update=_of(settings, NETWORK_SETTINGS))
    gpu = gpu_profile(row.gpu)
    cluster = Cluster(
        name=f"{row.gpu}-{row.world_size}",
        num_nodes=row.world_size // per_node,
        gpus_per_node=per_node,
        gpu=gpu,
        network=network,
        hbm_capacity_gb=gpu.hbm_capacity_gb,
        memory_safety_margin=0.0,
    )
    workload = Workload(
        name=row.model,
        architecture=row.architecture,
        baseline=_trial(settings | _schedule_of(row, settings)),
        precision=Precision.model_validate(_of(settings, PRECISION_SETTINGS)),
        source=row.citation,
        framework=row.framework or "megatron",
        **_of(settings, WORKLOAD_SETTINGS),
    )
    return Case(workload, cluster)


def _schedule_of(row: MeasuredRow, settings: Mapping[str, Any]) -> dict[str, Any]:
    """What Megatron runs for these virtual stages, where no source or recipe names a schedule."""
    if "pp_schedule" in row.stated or settings["pp_schedule"] not in ("1f1b", "interleaved"):
        return {}
    return {"pp_schedule": "interleaved" if settings["vpp"] > 1 else "1f1b"}


def _trial(settings: Mapping[str, Any]) -> NormalTrial:
    """The trial in normal form. Listed layers give way to a stated count of layers."""
    knobs = _of(settings, TRIAL_SETTINGS)
    if knobs["recompute_granularity"] != "full":
        knobs["recompute_layer_ids"] = ()
    return settled(NormalTrial.model_validate(knobs))


def _of(settings: Mapping[str, Any], names: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name in names}
