"""The target cluster: how many of which GPU, wired how, running what."""

from typing import Literal

from pydantic import Field

from schemas.calibration import Calibration
from schemas.gpu import GpuProfile
from schemas.model import FrozenModel


class Network(FrozenModel):
    """Three domains (node, pod, cluster), as the ecosystem's hardware YAML names them.

    Bandwidths in GB/s (10^9 bytes per second), latencies in microseconds. Bounds here and in the
    GPU's profile are what no machine is near: they keep every time finite.
    """

    node_bw: float = Field(ge=0.01, le=1e6)
    """Per-GPU egress inside a node."""
    node_lat: float = Field(ge=0, le=1e6)
    pod_bw: float = Field(ge=0.01, le=1e6)
    """Per NIC, between nodes."""
    pod_lat: float = Field(ge=0, le=1e6)
    cluster_bw: float = Field(ge=0.01, le=1e6)
    """Per NIC, between pods."""
    cluster_lat: float = Field(ge=0, le=1e6)
    node_size: int = Field(gt=0, le=10**6)
    """GPUs in a node."""
    pod_size: int = Field(gt=0, le=10**9)
    """GPUs in a pod."""
    nics_per_node: int = Field(gt=0, le=10**4)
    switch_topology: bool = False
    node_topology: Literal["mesh", "switch"] = "mesh"
    vector_flops: float = Field(ge=1e9, le=1e18)
    """FLOP/s of the reduction inside a collective."""


NOT_KNOWN = "none"
"""A part of the stack that is neither declared nor detected."""


class Stack(FrozenModel):
    """The software that moves a score; "none" where neither detected nor declared."""

    rocm: str = NOT_KNOWN
    hipblaslt: str = NOT_KNOWN
    rccl: str = NOT_KNOWN
    framework: str = NOT_KNOWN
    torch: str = NOT_KNOWN
    cuda: str = NOT_KNOWN
    cublas: str = NOT_KNOWN
    nccl: str = NOT_KNOWN

    @property
    def parts(self) -> dict[str, str]:
        """What a signature holds. NVIDIA's libraries only where known: without them a signature is
        what it was before they could be said."""
        return {
            name: value
            for name, value in self.model_dump(mode="json").items()
            if value != NOT_KNOWN or name not in _SAID_LATER
        }


_SAID_LATER = frozenset({"cuda", "cublas", "nccl"})


class MoeImbalance(FrozenModel):
    """Busiest over mean expert load: per layer (memory peak) and pooled over a step (time)."""

    layer: float = Field(default=1.0, ge=1, le=1e4)
    pooled: float = Field(default=1.0, ge=1, le=1e4)


class MemoryOverheads(FrozenModel):
    """Memory beside weights, states and activations: `memory_overheads:` of the cluster file.

    The first group are the numbers behind the estimates, with their sources. The second replaces a
    line that is otherwise derived from shapes; None keeps what is derived. GB are 2^30 bytes per
    GPU.
    """

    framework_context_gb: float = Field(default=1.3, ge=0, le=1e6)
    """Driver context, loaded kernels, BLAS workspaces; constant, measured. 1.34 GB after the first
    kernel on an NVIDIA GPU (Hugging Face, "Model training anatomy"); 0.93 GB outside the allocator
    of a one-GPU job on MI355X (out-of-memory message of pytorch/pytorch#175431)."""
    first_communicator_gb: float = Field(default=1.0, ge=0, le=1e6)
    further_communicator_gb: float = Field(default=0.65, ge=0, le=1e6)
    """Buffers of the collective library, which live outside the framework's allocator: measured on
    LUMI as 1 GiB for the first communicator and 0.65 GiB for each further one, whatever the world
    size (Lumi-supercomputer/LUMI-AI-Guide#111). Elsewhere: 1.79 GiB for two communicators on H100
    (vllm-project/vllm#10511); 3.54 GiB for context and communicators of FSDP2 on one node of MI325X
    (AMD-AGI/Primus#349)."""
    fragmentation: float = Field(default=0.055, ge=0, lt=1)
    """Reserved but unallocated, over what is allocated and freed every step: 12.46 GiB beside
    229.04 GiB in an out-of-memory message of Llama 3.1 8B on MI325X (AMD-AGI/Primus#349)."""
    fsdp_gathered_units: int = Field(default=2, ge=1, le=8)
    """Units whose weights FSDP2 holds unsharded at once: the one computed and the one prefetched
    (PyTorch's `fully_shard` documentation)."""
    deepep_channels: int = Field(default=32, ge=1, le=10**4)
    """Channels of DeepEP's exchange buffers, two compute units each: 64 units, as the recipes for
    MI355X set (Primus, `turbo_deepep_num_cu`)."""

    fsdp_gather_gb: float | None = Field(default=None, ge=0, le=1e6)
    expert_exchange_gb: float | None = Field(default=None, ge=0, le=1e6)
    deepep_buffer_gb: float | None = Field(default=None, ge=0, le=1e6)
    recompute_working_set_gb: float | None = Field(default=None, ge=0, le=1e6)
    gradient_working_set_gb: float | None = Field(default=None, ge=0, le=1e6)
    logits_gb: float | None = Field(default=None, ge=0, le=1e6)
    optimizer_step_gb: float | None = Field(default=None, ge=0, le=1e6)


class Cluster(FrozenModel):
    """A resolved target cluster. `world_size` GPUs, ranks numbered node by node."""

    name: str
    num_nodes: int = Field(gt=0)
    gpus_per_node: int = Field(gt=0)
    gpu: GpuProfile
    network: Network
    hbm_capacity_gb: float = Field(gt=0, le=1e6)
    memory_safety_margin: float = Field(ge=0, lt=1)
    stack: Stack = Stack()
    moe_imbalance: MoeImbalance | None = None
    """None: taken from the workload (forced balancing: 1; else the oracle's default)."""
    memory_overheads: MemoryOverheads = MemoryOverheads()
    placement: Literal["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"] = "tp-cp-ep-dp-pp"
    """Order in which parallel groups take consecutive ranks, innermost first (Megatron's)."""
    calibration: Calibration | Literal["none"] | None = None
    """The user's own; "none": published rates alone; None: the one that ships, if any."""
    gpu_hour_price: float | None = Field(default=None, ge=0, le=1e6)
    gpu_power_w: float | None = Field(default=None, ge=0, le=1e6)

    @property
    def world_size(self) -> int:
        """GPUs in the cluster."""
        return self.num_nodes * self.gpus_per_node

    @property
    def cap_gb(self) -> float:
        """The feasibility cap in 2^30 bytes: nameplate less the margin, or usable HBM if less."""
        return min(self.hbm_capacity_gb * (1 - self.memory_safety_margin), self.gpu.usable_hbm_gb)
