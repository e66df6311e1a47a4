"""The target cluster: how many of which GPU, wired how, running what."""

from typing import Literal

from pydantic import Field

from schemas.gpu import GpuProfile
from schemas.model import FrozenModel


class Network(FrozenModel):
    """Three domains (node, pod, cluster), as the ecosystem's hardware YAML names them.

    Bandwidths in GB/s (10^9 bytes per second), latencies in microseconds.
    """

    node_bw: float = Field(gt=0)
    """Per-GPU egress inside a node."""
    node_lat: float = Field(ge=0)
    pod_bw: float = Field(gt=0)
    """Per NIC, between nodes."""
    pod_lat: float = Field(ge=0)
    cluster_bw: float = Field(gt=0)
    """Per NIC, between pods."""
    cluster_lat: float = Field(ge=0)
    node_size: int = Field(gt=0)
    """GPUs in a node."""
    pod_size: int = Field(gt=0)
    """GPUs in a pod."""
    nics_per_node: int = Field(gt=0)
    switch_topology: bool = False
    node_topology: Literal["mesh", "switch"] = "mesh"
    vector_flops: float = Field(gt=0)
    """FLOP/s of the reduction inside a collective."""


class Stack(FrozenModel):
    """The software that moves a score; "none" where neither detected nor declared."""

    rocm: str = "none"
    hipblaslt: str = "none"
    rccl: str = "none"
    framework: str = "none"
    torch: str = "none"


class MoeImbalance(FrozenModel):
    """Busiest over mean expert load: per layer (memory peak) and pooled over a step (time)."""

    layer: float = Field(default=1.0, ge=1)
    pooled: float = Field(default=1.0, ge=1)


class Cluster(FrozenModel):
    """A resolved target cluster. `world_size` GPUs, ranks numbered node by node."""

    name: str
    num_nodes: int = Field(gt=0)
    gpus_per_node: int = Field(gt=0)
    gpu: GpuProfile
    network: Network
    hbm_capacity_gb: float = Field(gt=0)
    memory_safety_margin: float = Field(ge=0, lt=1)
    stack: Stack = Stack()
    moe_imbalance: MoeImbalance | None = None
    """None: taken from the workload (forced balancing: 1; else the oracle's default)."""
    placement: Literal["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"] = "tp-cp-ep-dp-pp"
    """Order in which parallel groups take consecutive ranks, innermost first (Megatron's)."""
    gpu_hour_price: float | None = Field(default=None, ge=0)
    gpu_power_w: float | None = Field(default=None, ge=0)

    @property
    def world_size(self) -> int:
        """GPUs in the cluster."""
        return self.num_nodes * self.gpus_per_node

    @property
    def cap_gb(self) -> float:
        """The feasibility cap in 2^30 bytes: nameplate less the margin, or usable HBM if less."""
        return min(self.hbm_capacity_gb * (1 - self.memory_safety_margin), self.gpu.usable_hbm_gb)
