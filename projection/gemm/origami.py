"""GEMM times from ROCm's own analytical model, Origami (PyPI `rocm-origami`), with no GPU.

Origami ranks candidate macro-tiles by predicted latency in cycles; the best candidate's latency
over the clock is the time. Imported when first asked for, because it is optional.

Two things it needs to be told. On gfx942 FP8 is the FNUZ encoding: asked about OCP FP8 it answers
with a 0x0x0 instruction. And it accepts thin GEMMs only with the non-temporal cache hint set on the
wide operand, so every tile is offered with each hint.
"""

from collections.abc import Hashable
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import version
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from projection.gemm.request import MEMO_LIMIT, check_request
from projection.operations import Dtype
from schemas.gpu import GpuProfile

_ARCHS: Final = ("gfx942", "gfx950")
_TILE_EDGES: Final = (32, 64, 128, 192, 256)
_K_BYTES: Final = (64, 128, 256)
_PADDED_TO: Final = (128, 256)
_REGISTER_FILE_BYTES: Final = 512 * 1024
"""Vector registers of a CU (CDNA3 white paper)."""
_NON_TEMPORAL: Final = 4
_HINTS: Final = ((0, 0), (_NON_TEMPORAL, 0), (0, _NON_TEMPORAL))
_DATA_TYPES: Final[dict[str, dict[Dtype, str]]] = {
    "gfx942": {"bf16": "BFloat16", "fp16": "Half", "fp32": "Float", "fp8": "Float8_fnuz"},
    "gfx950": {"bf16": "BFloat16", "fp16": "Half", "fp32": "Float", "fp8": "Float8"},
}
_ELEMENT_BYTES: Final[dict[Dtype, int]] = {"bf16": 2, "fp16": 2, "fp32": 4, "fp8": 1}


def unavailable_reason(gpu: GpuProfile) -> str | None:
    """Why Origami cannot model `gpu` here, or None when it can."""
    if gpu.arch not in _ARCHS:
        return f"it models {' and '.join(_ARCHS)}, not {gpu.arch} ({gpu.name})"
    try:
        _library()
    except (ImportError, OSError) as error:
        return f"rocm-origami cannot be imported: {error}"
    return None


class OrigamiGemm:
    """Origami for one GPU: its CUs, clock, LDS and HBM bandwidth are the profile's."""

    name = "origami"

    def __init__(self, gpu: GpuProfile) -> None:
        self._origami: Any = _library()
        self.version = version("rocm-origami")
        self._gpu = gpu
        self._cycles_per_ms = gpu.clock_mhz * 1e3
        self._hardware = self._origami.get_hardware_for_arch(
            getattr(self._origami.architecture_t, gpu.arch),
            gpu.compute_units,
            gpu.lds_bytes,
            gpu.l2_bytes,
            round(gpu.clock_mhz * 1e3),
        )
        # Origami knows one HBM bandwidth per architecture; the profile knows the GPU's own.
        # Its unit is bytes per cycle.
        self._hardware.mem3_perf_ratio = gpu.hbm_gb_per_s * 1e3 / gpu.clock_mhz
        self._configs: dict[Dtype, list[Any]] = {}
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
        """Milliseconds of `batch` equal GEMMs in one launch.

        Origami's own batch dimension, but never longer than the GEMMs one after another: its time
        per GEMM is not monotonic in the batch (on MI355X eight of 4096 x 4096 x 7168 take 1.3
        times as long each as one alone, and 16 of them less again). Nor longer than the GEMM padded
        with zeros to whole tiles, which anybody may run instead: uneven numbers of an expert's rows
        would cost up to 4.5 times as much.
        """
        key = (m, n, k, batch, dtype, layout)
        known = self._memo.get(key)
        if known is not None:
            return known
        check_request(self._gpu, m, n, k, batch, dtype)
        best = self._origami.select_config(
            self._problem(m, n, k, batch, dtype, layout), self._hardware, self._candidates(dtype)
        )
        time_ms = float(best.latency) / self._cycles_per_ms
        if batch > 1:
            alone = self.time_ms(m, n, k, dtype=dtype, layout=layout)
            time_ms = min(time_ms, batch * alone)
        for edge in _PADDED_TO:
            padded = tuple(-(-side // edge) * edge for side in (m, n, k))
            if padded != (m, n, k):
                whole = self.time_ms(*padded, batch=batch, dtype=dtype, layout=layout)
                time_ms = min(time_ms, whole)
        if len(self._memo) >= MEMO_LIMIT:
            self._memo.clear()
        self._memo[key] = time_ms
        return time_ms

    def _problem(self, m: int, n: int, k: int, batch: int, dtype: Dtype, layout: str) -> Any:
        """The GEMM in Origami's terms; FP8 operands accumulate into BF16 outputs."""
        o = self._origami
        operand = getattr(o.data_type_t, _DATA_TYPES[self._gpu.arch][dtype])
        output = o.data_type_t.BFloat16 if dtype == "fp8" else operand
        problem = o.problem_t()
        problem.size = o.dim3_t(m, n, k)
        problem.batch = batch
        problem.a_transpose = getattr(o.transpose_t, layout[0])
        problem.b_transpose = getattr(o.transpose_t, layout[1])
        problem.a_dtype = problem.b_dtype = problem.mi_dtype = operand
        problem.c_dtype = problem.d_dtype = output
        return problem

    def _candidates(self, dtype: Dtype) -> list[Any]:
        """Macro-tiles whose operands fit LDS and whose accumulators fit registers, per hint."""
        known = self._configs.get(dtype)
        if known is not None:
            return known
        o = self._origami
        operand = getattr(o.data_type_t, _DATA_TYPES[self._gpu.arch][dtype])
        instruction = self._hardware.get_recommended_matrix_instruction(operand)
        element = _ELEMENT_BYTES[dtype]
        configs = []
        for tile_m, tile_n, k_bytes, occupancy in _tiles():
            tile_k = k_bytes // element
            lds = (tile_m + tile_n) * k_bytes * occupancy
            # Half the registers hold accumulators, the rest operands and addresses.
            accumulators = tile_m * tile_n * 4 * occupancy
            if lds > self._gpu.lds_bytes or accumulators > _REGISTER_FILE_BYTES // 2:
                continue
            if tile_k % instruction.k:
                continue
            for hint_a, hint_b in _HINTS:
                config = o.config_t()
                config.mt = o.dim3_t(tile_m, tile_n, tile_k)
                config.mi = instruction
                config.occupancy = occupancy
                config.cache_hints_a = hint_a
                config.cache_hints_b = hint_b
                configs.append(config)
        self._configs[dtype] = configs
        return configs


def _tiles() -> list[tuple[int, int, int, int]]:
    """(m, n, bytes of k, tiles resident per CU) of every candidate shape."""
    return [
        (tile_m, tile_n, k_bytes, occupancy)
        for tile_m in _TILE_EDGES
        for tile_n in _TILE_EDGES
        for k_bytes in _K_BYTES
        for occupancy in (1, 2)
    ]


@cache
def _library() -> ModuleType:
    """The compiled extension alone: the package around it imports torch when that is there."""
    package = find_spec("origami")
    if package is None or not package.submodule_search_locations:
        raise ImportError("no package named origami")
    for folder in package.submodule_search_locations:
        for suffix in EXTENSION_SUFFIXES:
            path = Path(folder) / f"origami{suffix}"
            if path.is_file():
                spec = spec_from_file_location("origami.origami", path)
                if spec is None or spec.loader is None:
                    raise ImportError(f"{path} is not loadable")
                module = module_from_spec(spec)
                spec.loader.exec_module(module)
                return module
    raise ImportError("package origami holds no extension module for this Python")
