"""Attention core: a tile model of flash attention, forward and backward, at peak clock.

A workgroup owns a tile of queries (forward) or of keys (backward) and walks the other operand tile
by tile, so scores never leave the compute unit (Dao, FlashAttention-2, 2023; Shah et al.,
FlashAttention-3, 2024). A step costs its matrix multiplications plus the exponentials of its
scores: FlashAttention-3's published rates at head dimensions 64 and 128 (0.50 and 0.66 of peak on
H100) are those of the sum, not of the larger of the two. Causal masks skip the tiles above the
diagonal and pay diagonal tiles in full. What a context-parallel share sees is stated at
`mean_visible_keys`.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from projection.machine import machine
from projection.operations import AttentionCore
from schemas.gpu import GpuProfile

Direction = Literal["forward", "backward"]

_ROWS: Final = (256, 128, 64)
"""Rows of the stationary tile, largest first."""
_COLUMNS: Final = (128, 64, 32)
"""Rows of the operand that streams by."""
_BACKWARD_ROWS: Final = 128
_BACKWARD_COLUMNS: Final = 64
_BF16_BYTES: Final = 2
_FP32_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class _Tiling:
    """One way to cut a head: stationary rows, streaming rows, cycles a step and a tile's ends."""

    rows: int
    columns: int
    step_cycles: float
    end_cycles: float


FLASH_2_ON_HOPPER: Final = (370 / 648, 322 / 561)
"""FlashAttention-2 over FlashAttention-3 on H100, forward and backward, head 128, 16k, no mask
(FlashAttention-3 paper, 2407.08608). Where the published rates are FlashAttention-2's already
(A100, MI300X) nothing is taken off; none was found for Blackwell, which gets Hopper's."""
FLASH_1_OVER_2: Final = 0.5
"""FlashAttention-2 is "around 2x" as fast as its predecessor (2307.08691)."""


def flash_share(gpu: GpuProfile, version: int | None) -> tuple[float, float]:
    """Rate of an older FlashAttention over the GPU's published one, forward and backward."""
    if version is None:
        return 1.0, 1.0
    newer = gpu.arch.startswith(("sm_90", "sm_100"))
    forward, backward = FLASH_2_ON_HOPPER if newer else (1.0, 1.0)
    older = FLASH_1_OVER_2 if version == 1 else 1.0
    return forward * older, backward * older


def attention_flops(op: AttentionCore, direction: Direction) -> float:
    """FLOPs of the scores a mask leaves: 2 GEMMs forward, 5 backward, a multiply-add as two.

    Forward is QK and PV; backward recomputes QK and adds dP = dO V, dV = P dO, dQ = dS K and
    dK = dS Q (FlashAttention-2, algorithm 2).
    """
    pairs = float(op.batch * op.heads * op.seq_q) * mean_visible_keys(op)
    if direction == "forward":
        return 2 * pairs * (op.d_qk + op.d_v)
    return 2 * pairs * (3 * op.d_qk + 2 * op.d_v)


def mean_visible_keys(op: AttentionCore) -> float:
    """Keys an average query of `op` attends to.

    Fewer queries than keys are one rank's share of a context-parallel sequence, balanced as
    Megatron deals it (two chunks, one from each end): its queries see on average what all queries
    of the sequence see. So work divides by cp and not by its square.
    """
    keys, window = op.seq_kv, op.window
    if not op.causal:
        return float(keys if window is None else min(keys, window))
    if window is None or window >= keys:
        return (keys + 1) / 2
    return window - window * (window - 1) / (2 * keys)


def reached_keys(op: AttentionCore) -> int:
    """Keys that any query of `op` attends to: all, but for a share under a window.

    Each of a share's two chunks of queries reaches a window back.
    """
    if not op.causal or op.window is None or op.window >= op.seq_kv:
        return op.seq_kv
    return min(op.seq_kv, op.seq_q + 2 * (op.window - 1))


def attention_forward_ms(op: AttentionCore, gpu: GpuProfile) -> float:
    """Milliseconds of the forward kernel, before `Achievable.attention`."""
    tiling = _forward_tiling(gpu, op.d_qk, op.d_v)
    cycles = _schedule(op, gpu, tiling, op.seq_q, op.seq_kv)
    queries = op.batch * op.heads * op.seq_q
    keys = op.batch * op.kv_heads * reached_keys(op)
    traffic = (queries + keys) * (op.d_qk + op.d_v) * _BF16_BYTES + queries * _FP32_BYTES
    return _at_least_hbm(cycles, traffic, gpu)


def attention_backward_ms(op: AttentionCore, gpu: GpuProfile) -> float:
    """Milliseconds of the backward kernels, before the factor of the backward kernel.

    dQ is summed in FP32 by atomics, step by step; the sum of dO·O per query beforehand and the
    conversion of dQ afterwards are passes over HBM.
    """
    tiling = _backward_tiling(gpu, op.d_qk, op.d_v)
    cycles = _schedule(op, gpu, tiling, op.seq_kv, op.seq_q)
    queries = op.batch * op.heads * op.seq_q
    keys = op.batch * op.kv_heads * reached_keys(op)
    operands = queries * (op.d_qk + 2 * op.d_v) + keys * (op.d_qk + op.d_v)
    gradients = queries * op.d_qk + keys * (op.d_qk + op.d_v)
    main = (operands + gradients) * _BF16_BYTES + queries * op.d_qk * _FP32_BYTES
    delta = queries * (2 * op.d_v * _BF16_BYTES + _FP32_BYTES)
    convert = queries * op.d_qk * (_FP32_BYTES + _BF16_BYTES)
    ends_ms = (delta + convert) / gpu.hbm_gb_per_s * 1e-6
    return _at_least_hbm(cycles, main, gpu) + ends_ms


def _at_least_hbm(cycles: float, num_bytes: float, gpu: GpuProfile) -> float:
    """Milliseconds of `cycles`, or of the HBM traffic when that takes longer."""
    return max(cycles / (gpu.clock_mhz * 1e3), num_bytes / gpu.hbm_gb_per_s * 1e-6)


def _schedule(
    op: AttentionCore, gpu: GpuProfile, tiling: _Tiling, stationary: int, streaming: int
) -> float:
    """Cycles until the last compute unit is done.

    Equal tiles fill waves. Unequal ones (causal) are dealt longest first, which evens them out
    unless one tile alone outlasts the average load (Graham's list scheduling bound).
    """
    tiles_per_head = -(-stationary // tiling.rows)
    worked_on = min(tiles_per_head, -(-reached_keys(op) // tiling.rows))
    heads = op.batch * op.heads
    total_steps, longest_steps = _steps(op, tiling, tiles_per_head, streaming)
    longest = longest_steps * tiling.step_cycles + tiling.end_cycles
    if not op.causal:
        waves = -(-heads * tiles_per_head // gpu.compute_units)
        return waves * longest
    total = heads * (total_steps * tiling.step_cycles + worked_on * tiling.end_cycles)
    return max(longest, total / gpu.compute_units)


def _steps(op: AttentionCore, tiling: _Tiling, tiles: int, streaming: int) -> tuple[float, float]:
    """Steps of all `tiles` of one head together, and of the longest tile."""
    full = float(-(-streaming // tiling.columns))
    band = max(1.0, tiling.rows / tiling.columns)
    if not op.causal:
        if op.window is not None:
            full = min(full, _window_steps(op.window, tiling, band))
        return tiles * full, full
    windowed = op.window is not None and op.window < op.seq_kv
    if op.seq_q < op.seq_kv and (windowed or tiles == 1):
        return _share_steps(op, tiling, tiles, full)
    return _causal_steps(op.window, tiling, tiles, full, band)


def _share_steps(
    op: AttentionCore, tiling: _Tiling, tiles: int, full: float
) -> tuple[float, float]:
    """Steps of a context-parallel share whose tiles are no sample of the whole sequence's.

    Of one tile of queries, or under a window, where a key meets few of the share's queries: the
    share has of the whole sequence's steps what it has of the queries (`mean_visible_keys`).
    """
    whole_tiles = -(-op.seq_kv // tiling.rows)
    whole_full = float(-(-op.seq_kv // tiling.columns))
    band = max(1.0, tiling.rows / tiling.columns)
    total, longest = _causal_steps(op.window, tiling, whole_tiles, whole_full, band)
    return total * tiles / whole_tiles * full / whole_full, min(full, longest)


def _causal_steps(
    window: int | None, tiling: _Tiling, tiles: int, full: float, band: float
) -> tuple[float, float]:
    """Steps of `tiles` that see from the diagonal alone up to `full` steps, and of the longest.

    Tile i of n sees a share i/n of the keys; the tiles on the diagonal count whole.
    """
    rise = max(0.0, full - band) / max(1, tiles - 1)
    limit = full if window is None else min(full, _window_steps(window, tiling, band))
    first = min(band, limit)
    if rise == 0:
        return tiles * first, first
    growing = min(tiles, int((limit - first) / rise) + 1)
    total = growing * first + rise * growing * (growing - 1) / 2 + (tiles - growing) * limit
    return total, min(limit, first + rise * (tiles - 1))


def _window_steps(window: int, tiling: _Tiling, band: float) -> float:
    """Steps of a tile whose every row sees `window` keys: the window, and the tile's own width."""
    return -(-(window - 1) // tiling.columns) + band


@lru_cache(maxsize=1024)
def _forward_tiling(gpu: GpuProfile, d_qk: int, d_v: int) -> _Tiling:
    """The largest query tile whose output and scores fit the accumulators."""
    cu = machine(gpu)
    width = d_qk + d_v
    columns = next(
        (c for c in _COLUMNS if 2 * c * width * _BF16_BYTES <= gpu.lds_bytes), _COLUMNS[-1]
    )
    rows = next(
        (r for r in _ROWS if r * (d_v + columns) * _FP32_BYTES <= cu.accumulator_bytes), _ROWS[-1]
    )
    multiply = 2 * rows * columns * width / _flops_per_cycle(gpu)
    exponentials = rows * columns / cu.exp_per_cycle
    stream = columns * width * _BF16_BYTES / cu.l2
    own = rows * width * _BF16_BYTES / cu.l2
    step = max(multiply + exponentials, stream)
    return _Tiling(rows, columns, step, cu.launch_cycles + own + stream)


@lru_cache(maxsize=1024)
def _backward_tiling(gpu: GpuProfile, d_qk: int, d_v: int) -> _Tiling:
    """Key tiles that keep dK and dV, and meet the queries with their output gradients."""
    cu = machine(gpu)
    rows, columns = _BACKWARD_ROWS, _BACKWARD_COLUMNS
    multiply = 2 * rows * columns * (3 * d_qk + 2 * d_v) / _flops_per_cycle(gpu)
    exponentials = rows * columns / cu.exp_per_cycle
    loads = columns * (d_qk + d_v) * _BF16_BYTES
    atomics = columns * d_qk * _FP32_BYTES
    own = 2 * rows * (d_qk + d_v) * _BF16_BYTES / cu.l2
    step = max(multiply + exponentials, (loads + atomics) / cu.l2)
    return _Tiling(rows, columns, step, cu.launch_cycles + own + loads / cu.l2)


def _flops_per_cycle(gpu: GpuProfile) -> float:
    """BF16 matrix FLOPs per cycle of one compute unit: attention cores stay in BF16."""
    return gpu.bf16_tflops * 1e6 / (gpu.clock_mhz * gpu.compute_units)


def attention_tflops(op: AttentionCore, gpu: GpuProfile, direction: Direction) -> float:
    """TFLOP/s of the model on `op`, the figure published kernels are compared by."""
    model = attention_forward_ms if direction == "forward" else attention_backward_ms
    return attention_flops(op, direction) / model(op, gpu) * 1e-9
