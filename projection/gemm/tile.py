"""Our own GEMM model: output tiles over compute units, step by step through K. Any vendor.

A GEMM is cut into macro-tiles; every compute unit works one off at a time, so the last wave is paid
in full. A tile is a pipeline fill, K steps and a drain. A step takes the longest of multiplying,
moving operands through LDS, and bringing them from L2, the memory-side cache and HBM; what the
architecture cannot overlap is added (the LDS write of a stage that has no second buffer, the first
operands after a barrier). The best tile and K split of a small set is the answer, as a tuned
library would choose. All rates are data-sheet rates at the profile's clock (`machine.py`).
"""

from collections.abc import Hashable
from dataclasses import dataclass
from math import inf, sqrt
from typing import Final

from projection.gemm.request import MEMO_LIMIT, check_request
from projection.machine import Machine, machine
from projection.operations import Dtype
from schemas.gpu import GpuProfile

_TILES: Final = (
    (256, 256),
    (256, 192),
    (192, 256),
    (192, 192),
    (256, 128),
    (128, 256),
    (192, 128),
    (128, 192),
    (128, 128),
    (256, 64),
    (64, 256),
    (128, 64),
    (64, 128),
    (64, 64),
    (64, 32),
    (32, 64),
)
_K_BYTES: Final = (64, 128, 256)
_SPLITS: Final = (1, 2, 4, 8, 16)
_ELEMENT_BYTES: Final[dict[Dtype, int]] = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1}
_FP32_BYTES: Final = 4
_OUTPUT_BYTES: Final = 2
"""BF16 out, also of FP8 operands; FP32 operands give FP32, whose store is HBM-bound anyway."""


@dataclass(frozen=True, slots=True)
class _Tile:
    """One macro-tile with its best K step. Cycles and bytes of one compute unit."""

    m: int
    n: int
    k: int
    step_cycles: float
    """A step when its operands come from L2 in time."""
    exposed_cycles: float
    fill_cycles: float
    """The first stage, which nothing hides: from L2, into LDS."""
    store_cycles: float
    """The output tile through LDS, where rows are gathered, and out to L2."""
    operand_bytes_m: float
    """Bytes of A one step takes."""
    operand_bytes_n: float
    overlapped_drain: bool
    """A second tile is resident, so fill and drain hide behind its steps."""


class TileGemm:
    """The tile model of one GPU. Rates scale with the profile's clock, peaks and bandwidths."""

    name = "tile"
    version = "1"

    def __init__(self, gpu: GpuProfile) -> None:
        self._gpu = gpu
        self._machine = machine(gpu)
        self._cycles_per_ms = gpu.clock_mhz * 1e3
        self._hbm_bytes_per_cycle = gpu.hbm_gb_per_s * 1e3 / gpu.clock_mhz
        fabric = self._machine.fabric_gb_per_s
        self._fabric_bytes_per_cycle = None if fabric is None else fabric * 1e3 / gpu.clock_mhz
        self._tiles: dict[Dtype, tuple[_Tile, ...]] = {}
        self._memo: dict[Hashable, float] = {}

    def time_ms(
        self,
        m: int,
        n: int,
        k: int,
        *,
        batch: int = 1,
        dtype: Dtype = "bf16",
        layout: str = "TN",
    ) -> float:
        """Milliseconds of `batch` equal GEMMs in one launch, whose tiles fill waves together.

        `layout` changes nothing here: every layout is staged through LDS.
        """
        del layout
        key = (m, n, k, batch, dtype)
        known = self._memo.get(key)
        if known is not None:
            return known
        check_request(self._gpu, m, n, k, batch, dtype)
        tiles = self._tiles.get(dtype)
        if tiles is None:
            tiles = self._tiles[dtype] = _tile_set(self._gpu, self._machine, dtype)
        element = _ELEMENT_BYTES[dtype]
        output_bytes = max(2, element)
        floor = batch * ((m + n) * k * element + m * n * output_bytes) / self._hbm_bytes_per_cycle
        best = inf
        for tile in tiles:
            best = self._tiled_cycles(tile, m, n, k, batch, output_bytes, best)
        time_ms = max(floor, best) / self._cycles_per_ms
        if len(self._memo) >= MEMO_LIMIT:
            self._memo.clear()
        self._memo[key] = time_ms
        return time_ms

    def _tiled_cycles(
        self, tile: _Tile, m: int, n: int, k: int, batch: int, output_bytes: int, best: float
    ) -> float:
        """The lesser of `best` and the cycles of the launch with `tile` at its best split of K."""
        grid_m, grid_n = -(-m // tile.m), -(-n // tile.n)
        tiles = grid_m * grid_n * batch
        steps = -(-k // tile.k)
        units = self._gpu.compute_units
        step = tile.step_cycles + tile.exposed_cycles
        partial_sums = 2 * m * n * batch * _FP32_BYTES / self._hbm_bytes_per_cycle
        for split in _SPLITS:
            if split > 1 and (tiles * split > 2 * units or split > steps):
                break
            parts, part_steps = tiles * split, -(-steps // split)
            # Each part writes its sums in FP32 and the last one to arrive reads them all.
            extra = 0.0 if split == 1 else split * partial_sums + self._machine.launch_cycles
            if extra + -(-parts // units) * part_steps * step >= best:
                continue
            cycles = extra + self._launch_cycles(
                tile, grid_m, grid_n, parts, part_steps, output_bytes, batch > 1
            )
            best = min(best, cycles)
        return best

    def _launch_cycles(
        self,
        tile: _Tile,
        grid_m: int,
        grid_n: int,
        tiles: int,
        steps: int,
        output_bytes: int,
        batched: bool,
    ) -> float:
        """Waves of tiles, each a fill, `steps` steps and a drain."""
        units = self._gpu.compute_units
        active = min(tiles, units)
        waves = -(-tiles // units)
        traffic = self._shared_cycles(tile, grid_m, grid_n, active, batched)
        step = max(tile.step_cycles, traffic) + tile.exposed_cycles
        fill = self._machine.launch_cycles + max(traffic, tile.fill_cycles) + tile.exposed_cycles
        to_hbm = active * tile.m * tile.n * output_bytes / self._hbm_bytes_per_cycle
        drain = max(to_hbm, tile.store_cycles)
        if tile.overlapped_drain:
            return fill + waves * max(steps * step, drain) + drain
        return waves * (fill + steps * step + drain)

    def _shared_cycles(
        self, tile: _Tile, grid_m: int, grid_n: int, active: int, batched: bool
    ) -> float:
        """Cycles to bring one step's operands of all active tiles from what they share.

        HBM delivers what differs among all tiles in flight; a memory-side cache delivers to every
        L2 what differs among the tiles of its own compute units. Those are a square block when the
        library swizzles its tiles, and a strip one tile wide in a batch, which ROCm's GEMM library
        walks in plain order (workgroup mapping 1).
        """
        hbm = _distinct_bytes(tile, grid_m, grid_n, active) / self._hbm_bytes_per_cycle
        if self._fabric_bytes_per_cycle is None:
            return hbm
        dies = self._gpu.num_xcd
        per_die = _distinct_bytes(tile, grid_m, grid_n, -(-active // dies), strip=batched)
        return max(hbm, per_die * min(dies, active) / self._fabric_bytes_per_cycle)


def _distinct_bytes(
    tile: _Tile, grid_m: int, grid_n: int, active: int, *, strip: bool = False
) -> float:
    """Bytes of distinct operands one step of `active` neighbouring tiles needs.

    Tiles in flight form a block as square as the grid allows, or a `strip` along m; those beyond
    one GEMM's grid belong to other members of the batch, which share nothing.
    """
    per_gemm = grid_m * grid_n
    if active >= per_gemm:
        gemms = active / per_gemm
        return gemms * (grid_m * tile.operand_bytes_m + grid_n * tile.operand_bytes_n)
    edge = active if strip else sqrt(active)
    rows = min(grid_m, max(edge, active / grid_n))
    return rows * tile.operand_bytes_m + active / rows * tile.operand_bytes_n


def _tile_set(gpu: GpuProfile, cu: Machine, dtype: Dtype) -> tuple[_Tile, ...]:
    """Every tile that fits, each with the K step that multiplies fastest."""
    peak = {"fp8": gpu.fp8_tflops, "fp32": gpu.vector_tflops}.get(dtype, gpu.bf16_tflops)
    assert peak is not None
    flops_per_cycle = peak * 1e6 / (gpu.clock_mhz * gpu.compute_units)
    tiles = []
    for m, n in _TILES:
        if m * n * _FP32_BYTES > cu.accumulator_bytes:
            continue
        options = [
            option
            for k_bytes in _K_BYTES
            if (option := _stage(gpu, cu, m, n, k_bytes, dtype, flops_per_cycle)) is not None
        ]
        tiles.append(min(options, key=lambda t: (t.step_cycles + t.exposed_cycles) / t.k))
    return tuple(tiles)


def _stage(
    gpu: GpuProfile,
    cu: Machine,
    m: int,
    n: int,
    k_bytes: int,
    dtype: Dtype,
    flops_per_cycle: float,
) -> _Tile | None:
    """Tile m x n advancing `k_bytes` of K a step, or None when a stage does not fit LDS."""
    stage_bytes = (m + n) * k_bytes
    buffers = gpu.lds_bytes // stage_bytes
    if buffers == 0:
        return None
    k = k_bytes // _ELEMENT_BYTES[dtype]
    multiply = 2 * m * n * k / flops_per_cycle
    reads_m, reads_n = cu.operand_reads
    read_bytes = reads_m * m + reads_n * n
    lds = read_bytes * k_bytes / cu.lds_read + stage_bytes / cu.lds_write
    # The units of a cluster fetch the larger operand together.
    fetched = (min(m, n) + max(m, n) / cu.cluster) * k_bytes
    exposed = 0.0
    if not cu.asynchronous:
        exposed = read_bytes * cu.instruction_k_bytes / cu.lds_read
        if buffers < 2:
            exposed += stage_bytes / cu.lds_write
    resident_twice = cu.persistent and 2 * m * n * _FP32_BYTES <= cu.accumulator_bytes
    return _Tile(
        m=m,
        n=n,
        k=k,
        step_cycles=max(multiply, lds, fetched / cu.l2),
        exposed_cycles=exposed,
        fill_cycles=fetched / cu.l2 + stage_bytes / cu.lds_write,
        store_cycles=m * n * _OUTPUT_BYTES * (1 / cu.lds_write + 1 / cu.lds_read + 1 / cu.l2),
        operand_bytes_m=m * k_bytes,
        operand_bytes_n=n * k_bytes,
        overlapped_drain=resident_twice,
    )
