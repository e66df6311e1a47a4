"""What the tile models need to know of a compute unit and its caches beyond the GPU profile.

Data-sheet and white-paper figures per architecture family; nothing here is fitted to a model or to
a measured GEMM.
"""

from dataclasses import dataclass
from typing import Final

from schemas.errors import ClusterError
from schemas.gpu import GpuProfile


@dataclass(frozen=True, slots=True)
class Machine:
    """One architecture. Rates in bytes per cycle of one compute unit unless the name says else."""

    lds_read: float
    lds_write: float
    l2: float
    """L2 to one compute unit."""
    fabric_gb_per_s: float | None
    """Memory-side cache to all L2s together, where L2 is split into several."""
    accumulator_bytes: int
    """Registers or tensor memory that may hold accumulators, per compute unit."""
    instruction_k_bytes: int
    """Depth in bytes of one matrix instruction: what must be in registers before the first."""
    operand_reads: tuple[float, float]
    """How often one stage of A and of B is read from LDS while it is multiplied."""
    cluster: int
    """Compute units that fetch one shared operand together, each its part (TMA multicast)."""
    asynchronous: bool
    """Copies into LDS run beside the multiplication and never stall it (cp.async, TMA)."""
    persistent: bool
    """Kernels keep two accumulators in flight, so one tile drains while the next multiplies."""
    exp_per_cycle: float
    """Exponentials per cycle of one compute unit."""
    launch_cycles: float = 400
    """From launch to first operands: one miss to HBM. About 400 cycles on V100 to H100 (published
    table, PMC10448217, table 3) and on MI300X (kernel authors' notes)."""


_CDNA3: Final = Machine(
    lds_read=128,
    lds_write=128,
    l2=29,
    fabric_gb_per_s=17200,
    accumulator_bytes=256 * 1024,
    instruction_k_bytes=32,
    operand_reads=(2, 2),
    cluster=1,
    asynchronous=False,
    persistent=False,
    exp_per_cycle=16,
)
"""AMD CDNA 3 white paper: 128 B/clk LDS, 17.2 TB/s Infinity Cache, 512 KiB of registers (half
for accumulators), transcendentals at a quarter of the vector rate: 4 SIMDs x 16 lanes / 4. Four
waves in a 2 x 2 arrangement read each operand twice. L2: of the 64 B/clk path to a CU, 29 were
measured on its sibling CDNA 2 (MI210: 5.1 TB/s over 104 CUs at 1.7 GHz, te42kyfo/gpu-benches)."""

_CDNA4: Final = Machine(
    lds_read=256,
    lds_write=128,
    l2=29,
    fabric_gb_per_s=17200,
    accumulator_bytes=256 * 1024,
    instruction_k_bytes=64,
    operand_reads=(2, 2),
    cluster=1,
    asynchronous=False,
    persistent=False,
    exp_per_cycle=32,
)
"""AMD CDNA 4 white paper: LDS read rate and transcendental rate doubled over CDNA 3, L2, fabric and
registers kept; the dense matrix instructions are twice as deep."""

_AMPERE: Final = Machine(
    lds_read=128,
    lds_write=128,
    l2=35.6,
    fabric_gb_per_s=None,
    accumulator_bytes=128 * 1024,
    instruction_k_bytes=32,
    operand_reads=(2, 2),
    cluster=1,
    asynchronous=True,
    persistent=False,
    exp_per_cycle=16,
)
"""NVIDIA A100 white paper: 128 B/clk shared memory, 256 KiB of registers (half for accumulators),
cp.async, 16 special-function results per clock and SM. L2 measured: 5.42 TB/s over 108 SMs at
1.41 GHz (te42kyfo/gpu-benches)."""

_HOPPER: Final = Machine(
    lds_read=128,
    lds_write=128,
    l2=5120 / 132,
    fabric_gb_per_s=None,
    accumulator_bytes=128 * 1024,
    instruction_k_bytes=32,
    operand_reads=(1, 2),
    cluster=2,
    asynchronous=True,
    persistent=True,
    exp_per_cycle=16,
)
"""NVIDIA H100 white paper: as A100, 5120 B/clk L2 in all (9.8 to 10.2 TB/s measured on H200,
te42kyfo/gpu-benches), wgmma reads operands straight from shared memory, so two warpgroups stacked
in m read A once and B twice, and TMA multicasts to clusters (CUTLASS's default is two SMs)."""

_BLACKWELL: Final = Machine(
    lds_read=128,
    lds_write=128,
    l2=2 * 5120 / 148,
    fabric_gb_per_s=None,
    accumulator_bytes=256 * 1024,
    instruction_k_bytes=32,
    operand_reads=(1, 0.5),
    cluster=2,
    asynchronous=True,
    persistent=True,
    exp_per_cycle=32,
)
"""NVIDIA Blackwell architecture brief and CUTLASS documentation of tcgen05: two dies with an L2
each (at Hopper's L2 rate: none was found measured), 256 KiB of tensor memory for accumulators,
MMA over two SMs that share operand B. Exponentials: FlashAttention-4 computes as many again on the
FMA units as the 16 special-function results per clock (Together AI, 2026)."""

_FAMILIES: Final = (
    ("gfx942", _CDNA3),
    ("gfx950", _CDNA4),
    ("sm_80", _AMPERE),
    ("sm_90", _HOPPER),
    ("sm_100", _BLACKWELL),
)


def machine(gpu: GpuProfile) -> Machine:
    """The machine of `gpu.arch`; an architecture nobody described is an error, not a guess."""
    for prefix, described in _FAMILIES:
        if gpu.arch == prefix or gpu.arch == prefix + "a":
            return described
    raise ClusterError(
        f"the kernel models do not know arch {gpu.arch!r} of GPU {gpu.name!r}",
        hint="known: " + ", ".join(prefix for prefix, _ in _FAMILIES),
    )
