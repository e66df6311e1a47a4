"""What a score depends on, as three hashed parts; change one part and exactly that is redone."""

from collections.abc import Mapping
from typing import Any

from projection import PROJECTION_VERSION
from projection.calibration import calibration_of, rates
from projection.gemm import GemmModel
from schemas.cluster import Cluster
from schemas.signature import Signature, content_hash
from schemas.workload import Workload

WORKLOAD_IDENTITY = frozenset(
    {"name", "architecture", "baseline", "source", "files", "document", "trainer", "warnings"}
)
"""Workload fields that no score depends on, or that stand elsewhere: the architecture has its own
entry, and a trial (the baseline included) is part of a result's identity beside the signature."""

CLUSTER_IDENTITY = frozenset(
    {"name", "gpu", "stack", "calibration", "gpu_hour_price", "gpu_power_w"}
)
"""Cluster fields that no score depends on, or that stand elsewhere."""


def signature_of(
    workload: Workload,
    cluster: Cluster,
    *,
    gemm: GemmModel,
    origin: Mapping[str, str] | None = None,
) -> Signature:
    """What everything that is said of `workload` on `cluster` depends on.

    model: the architecture (without its name) and a hash of the workload's own settings (sequence
    length, precision, dispatcher, …), which no knob of a trial carries. cluster: GPU profile,
    network, size, placement, capacity and margin. stack: the software, this projection's version,
    the GEMM model and the calibration. What was asked (the mode, the memory regime) stands beside
    the signature in a result's identity, as its source and regime.
    `origin`: where each stack entry came from, when somebody knows better than: declared unless
    "none".
    """
    stack = cluster.stack.parts
    known = origin or {}
    gpu = cluster.gpu.model_dump(mode="json", exclude={"sources"})
    return Signature(
        model={
            "architecture": workload.architecture.model_dump(mode="json", exclude={"name"}),
            "workload": content_hash(_fields(workload, WORKLOAD_IDENTITY)),
        },
        cluster={"gpu": gpu, **_fields(cluster, CLUSTER_IDENTITY)},
        stack={
            **stack,
            "projection": PROJECTION_VERSION,
            "gemm": f"{gemm.name} {gemm.version}",
            "calibration": calibration_hash(cluster, gemm),
        },
        origin={
            name: known.get(name, "none" if value == "none" else "declared")
            for name, value in stack.items()
        },
    )


def calibration_hash(cluster: Cluster, gemm: GemmModel) -> str:
    """Hash of the calibration in force and of the rates it leads to, over this GEMM model."""
    calibration = calibration_of(cluster, gemm.name)
    achieved = rates(cluster.gpu, gemm.name, calibration)
    return content_hash(
        {
            "rates": achieved.model_dump(mode="json", exclude={"sources"}),
            "calibration": calibration and calibration.model_dump(mode="json"),
        }
    )


def _fields(model: Workload | Cluster, left_out: frozenset[str]) -> dict[str, Any]:
    """The JSON form of `model` without `left_out`."""
    return model.model_dump(mode="json", exclude=set(left_out))
