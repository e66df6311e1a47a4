"""How the backward and grouped GEMM factors of AMD calibrations follow from published timings.

Run as `python -m benchmarks.gemm_factors` from the repository root. For each table of
`benchmarks/data/rocm_gemms.json` (rows: experts, rows, outputs, inputs, forward and backward
TFLOP/s) it prints the factors at which each GEMM model reproduces the table, casts at the achieved
HBM bandwidth included where the timings include them. The shipped calibrations state these numbers.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any, Literal

from scipy.optimize import brentq

from projection.gemm import GemmModel, gemm_model
from projection.operations import Dtype
from projection.profiles import achievable, gpu_profile

DATA = Path(__file__).parent / "data"
CAST_BYTES = 5
"""Per element of a tensorwise cast: read for the maximum, read again (2 B each), write (1 B)."""


@dataclass(frozen=True)
class Layer:
    """A linear layer of one or several experts on one GPU's GEMM model."""

    model: GemmModel
    dtype: Dtype
    hbm_gb_per_s: float
    experts: int
    rows: int
    outputs: int
    inputs: int

    def tflops(self, way: Literal["forward", "backward"], factor: float) -> float:
        """Rate of one direction with its GEMMs at `factor` of the model's speed."""
        e, m, n, k = self.experts, self.rows, self.outputs, self.inputs
        gflop = 2 * e * m * n * k * 1e-9
        if way == "forward":
            gemms, casts, work = [((m, n, k), "TN")], m * k + n * k, gflop
        else:
            gemms, casts, work = [((m, k, n), "NN"), ((n, k, m), "NT")], m * n, 2 * gflop
        time_ms = sum(
            self.model.time_ms(*shape, batch=e, dtype=self.dtype, layout=layout)
            for shape, layout in gemms
        )
        cast_ms = e * casts * CAST_BYTES / self.hbm_gb_per_s * 1e-6 if self.dtype == "fp8" else 0.0
        return work / (time_ms / factor + cast_ms)


def factors(table: dict[str, Any], model: GemmModel, hbm_gb_per_s: float) -> list[float]:
    """Forward and backward factor: of the averages, or the geometric mean of every row's."""
    layers = [Layer(model, table["dtype"], hbm_gb_per_s, *row[:4]) for row in table["rows"]]
    found = []
    ways: tuple[Literal["forward", "backward"], ...] = ("forward", "backward")
    for column, way in enumerate(ways):
        if "average" in table:
            measured = table["average"][column]
            found.append(solve(layers, way, measured))
        else:
            rates = [row[4 + column] for row in table["rows"]]
            pairs = zip(layers, rates, strict=True)
            found.append(geometric_mean(solve([layer], way, rate) for layer, rate in pairs))
    return found


def solve(layers: list[Layer], way: Literal["forward", "backward"], measured: float) -> float:
    """The factor at which the mean rate of `layers` is `measured`."""

    def excess(factor: float) -> float:
        return fmean(layer.tflops(way, factor) for layer in layers) - measured

    return float(brentq(excess, 0.01, 5.0))


def main() -> None:
    layouts = json.loads((DATA / "hipblaslt_fp8_layouts.json").read_text(encoding="utf-8"))
    ratio = geometric_mean(row[3] / row[4] for row in layouts["rows"])
    print(f"hipBLASLt FP8, NT over TN: {ratio:.3f}")
    for table in json.loads((DATA / "rocm_gemms.json").read_text(encoding="utf-8")):
        gpu = gpu_profile(table["gpu"])
        for name in ("origami", "tile"):
            hbm = gpu.hbm_gb_per_s * achievable(gpu).hbm
            backend: Literal["origami", "tile"] = "origami" if name == "origami" else "tile"
            forward, backward = factors(table, gemm_model(gpu, backend), hbm)
            print(
                f"{gpu.name} {table['name']} over {name}: forward {forward:.3f}, "
                f"backward {backward:.3f}, ratio {backward / forward:.3f}"
            )


if __name__ == "__main__":
    main()
