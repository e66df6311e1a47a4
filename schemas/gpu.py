"""What one GPU can do, from its vendor's data sheet; derates come from a calibration."""

from typing import Literal

from pydantic import Field

from schemas.model import FrozenModel


class GpuProfile(FrozenModel):
    """One GPU model. Peaks are data-sheet figures without sparsity, at `clock_mhz`."""

    name: str
    vendor: Literal["amd", "nvidia"]
    arch: str
    """Compiler target: gfx942, gfx950, sm_80, sm_90, sm_100."""
    compute_units: int = Field(gt=0, le=10**5)
    """CUs (AMD) or SMs (NVIDIA)."""
    num_xcd: int = Field(default=1, gt=0, le=1024)
    """Dies that share one L2 each."""
    clock_mhz: float = Field(ge=100, le=10_000)
    lds_bytes: int = Field(ge=1024, le=2**30)
    """LDS or shared memory per compute unit."""
    l2_bytes: int = Field(ge=1024, le=2**40)
    """L2 per XCD (AMD) or in all (NVIDIA)."""
    bf16_tflops: float = Field(ge=0.01, le=1e6)
    fp8_tflops: float | None = Field(default=None, ge=0.01, le=1e6)
    hbm_gb_per_s: float = Field(ge=1, le=1e6)
    hbm_capacity_gb: float = Field(gt=0, le=1e6)
    """Nameplate capacity, in 2^30 bytes as the data sheets of the field use it."""
    usable_hbm_gb: float = Field(gt=0, le=1e6)
    """What the framework can allocate, in 2^30 bytes."""
    vector_tflops: float = Field(ge=0.01, le=1e6)
    """Peak FP32 vector rate: softmax, reductions."""
    sources: tuple[str, ...] = ()


class Achievable(FrozenModel):
    """Fractions of peak that real kernels reach on one GPU, each with where it comes from.

    These are the only factors between the peak-clock models and a projected time.
    """

    gpu: str
    calibrated: bool = False
    """Whether the factors were fitted from measured training runs (else: published sweeps)."""
    gemm_bf16: float = Field(gt=0, le=1.5)
    """Multiplies the GEMM model's own rate (which already has tile and wave losses)."""
    gemm_fp8: float = Field(gt=0, le=1.5)
    gemm_bf16_backward: float | None = Field(default=None, gt=0, le=1.5)
    """The same for input and weight gradients, whose operands lie otherwise; None: as forward."""
    gemm_fp8_backward: float | None = Field(default=None, gt=0, le=1.5)
    one_expert_bf16: float | None = Field(default=None, gt=0, le=1.5)
    """Grouped GEMMs of experts when a GPU holds one; None: as `gemm_bf16`, and so below."""
    one_expert_bf16_backward: float | None = Field(default=None, gt=0, le=1.5)
    grouped_bf16: float | None = Field(default=None, gt=0, le=1.5)
    """Grouped GEMMs of several experts."""
    grouped_bf16_backward: float | None = Field(default=None, gt=0, le=1.5)
    one_expert_fp8: float | None = Field(default=None, gt=0, le=1.5)
    """None: as `grouped_fp8`, the same kernels."""
    one_expert_fp8_backward: float | None = Field(default=None, gt=0, le=1.5)
    grouped_fp8: float | None = Field(default=None, gt=0, le=1.5)
    """Grouped GEMMs of one or several experts."""
    grouped_fp8_backward: float | None = Field(default=None, gt=0, le=1.5)
    attention: float = Field(gt=0, le=1.5)
    """Multiplies the attention model's forward rate."""
    attention_backward: float | None = Field(default=None, gt=0, le=1.5)
    """The same for the backward kernel, which is another kernel; None: as forward."""
    hbm: float = Field(gt=0, le=1)
    """Achieved fraction of peak HBM bandwidth in streaming passes."""
    optimizer_hbm: float = Field(gt=0, le=1)
    node_link: float = Field(gt=0, le=1)
    """Of the bandwidth inside a node, what collectives reach; large all-reduces set it."""
    gather_link: float | None = Field(default=None, gt=0, le=1)
    """The same for all-gather and reduce-scatter; None: as `node_link`."""
    switch_reduction: float | None = Field(default=None, gt=0, le=1)
    """The same for all-reduces that the node's switch adds up (NVLS); None: it cannot."""
    pod_link: float = Field(gt=0, le=1)
    cluster_link: float = Field(gt=0, le=1)
    kernel_launch_us: float = Field(ge=0)
    """Gap between dependent kernels on one stream."""
    collective_launch_us: float = Field(ge=0)
    host_launch_us: float = Field(ge=0)
    """Host time of one eager framework operation: dispatch, autograd, launch."""
    host_sync_us: float = Field(ge=0)
    """GPU time lost each time the host waits for a value of the GPU."""
    iteration_overhead_ms: float = Field(ge=0)
    """Per-iteration host work: data, logging, loss reduction."""
    a2a_overlap: tuple[float, float, float, float] = (0.65, 0.75, 0.80, 0.85)
    """Fraction of a DeepEP all-to-all that hides behind compute, by sync-free stage 0 to 3."""
    sources: dict[str, str] = Field(default_factory=dict)
