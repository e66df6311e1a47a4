"""FP8 speeds up what multiplies enough, and attention not at all."""

from itertools import product

import pytest
from hypothesis import HealthCheck, assume, given, settings

from projection.calibration import rates, shipped_calibration
from projection.gemm import gemm_model
from projection.gemm.origami import unavailable_reason
from projection.kernels import gemm_factor
from projection.operations import Dtype, Gemm
from projection.profiles import gpu_profile
from schemas.gpu import GpuProfile
from tests.builders import cluster, llama_70b
from tests.projection.time.cases import Case, cases

GPUS = ("mi300x", "mi325x", "mi355x", "h100", "h200", "b200", "gb200")
ROWS = (64, 256, 512, 1024, 4096, 16384)
OUTPUTS = (64, 256, 1024, 4096, 28672)
INPUTS = (64, 128, 256, 512, 1024, 4096, 28672)
MULTIPLIES = 0.3
"""Of the time of a BF16 GEMM, what multiplying takes at the data sheet's peak, at least, where the
GEMM is compute-bound: with fewer tiles than compute units it waits for its first operands."""
MOSTLY = 0.5
"""Of a BF16 iteration, what GEMMs take at least where it is compute-bound. Below that casts (of
rows that sync-free stage 3 allocates and nobody sent, at worst) or what compute no longer hides of
other GPUs' transfers may cost what the faster multiplications save."""


def compute_bound(op: Gemm, gpu: GpuProfile, bf16_ms: float) -> bool:
    """Whether multiplying limits `op` in either precision: its intensity is above FP8's ridge, the
    higher one, and multiplying is no small part of its time."""
    assert gpu.fp8_tflops is not None
    flops = 2.0 * op.m * op.n * op.k * op.batch
    fp8_bytes = op.batch * ((op.m + op.n) * op.k + 2 * op.m * op.n)
    above_ridge = flops / (gpu.fp8_tflops * 1e12) >= fp8_bytes / (gpu.hbm_gb_per_s * 1e9)
    return above_ridge and flops / (gpu.bf16_tflops * 1e9) >= MULTIPLIES * bf16_ms


@pytest.mark.parametrize("backend", ["tile", "origami"])
@pytest.mark.parametrize("name", GPUS)
@pytest.mark.parametrize("calibrated", [False, True])
def test_every_compute_bound_gemm_is_faster_in_fp8(
    name: str, backend: str, calibrated: bool
) -> None:
    gpu = gpu_profile(name)
    if backend == "origami" and (reason := unavailable_reason(gpu)):
        pytest.skip(reason)
    model = gemm_model(gpu, backend)
    achieved = rates(gpu, model.name, shipped_calibration(gpu, backend) if calibrated else None)

    def alone_ms(op: Gemm) -> float:
        return model.time_ms(op.m, op.n, op.k, batch=op.batch, dtype=op.dtype, layout=op.layout)

    def gemm(dtype: Dtype, m: int, n: int, k: int, layout: str, batch: int) -> Gemm:
        call = "grouped" if batch > 1 else "linear"
        return Gemm("gemm", m, n, k, dtype=dtype, layout=layout, batch=batch, call=call)

    seen = 0
    for shape in product(ROWS, OUTPUTS, INPUTS, ("TN", "NN"), (1, 4)):
        bf16, fp8 = gemm("bf16", *shape), gemm("fp8", *shape)
        bf16_ms = alone_ms(bf16)
        if not compute_bound(bf16, gpu, bf16_ms):
            continue
        seen += 1
        before, after = (
            ms / gemm_factor(op, achieved) + achieved.kernel_launch_us * 1e-3
            for op, ms in ((bf16, bf16_ms), (fp8, alone_ms(fp8)))
        )
        assert after < 0.95 * before, shape
    assert seen > 100


@given(case=cases(("dense", "Llama 70B", "Mixtral 8x22B")))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_fp8_speeds_up_every_iteration_that_is_mostly_gemms(case: Case) -> None:
    """With launches out of the way: FP8 needs more of them, and a host that is the slower side
    gains nothing by a faster GPU."""
    assume(case.cluster.gpu.fp8_tflops is not None)
    graphs = case.workload.model_copy(update={"cuda_graphs": ("full_iteration",)})
    case = Case(graphs, case.cluster, case.trial)
    bf16 = case.project(fp8="none")
    assume(bf16.time_breakdown_ms["gemm"] >= MOSTLY * (bf16.iteration_ms or 0))
    assert (case.project(fp8="hybrid").iteration_ms or 0) < (bf16.iteration_ms or 0)


@pytest.mark.parametrize("name", GPUS)
@pytest.mark.parametrize("knobs", [{}, {"tp": 8}])
def test_fp8_slows_a_large_dense_model_only_where_its_host_is_the_slower_side(
    name: str, knobs: dict[str, int]
) -> None:
    workload, on = llama_70b(gbs=64), cluster(1, gpu=gpu_profile(name))
    case = Case(workload, on, workload.baseline.model_copy(update=knobs))
    bf16, fp8 = case.project(), case.project(fp8="hybrid")
    assert fp8.time_breakdown_ms["gemm"] < 0.75 * bf16.time_breakdown_ms["gemm"]
    assert fp8.time_breakdown_ms["attention"] == bf16.time_breakdown_ms["attention"]
    waits = fp8.time_breakdown_ms.get("host_launch", 0.0)
    assert (fp8.iteration_ms or 0) - waits < 0.9 * (bf16.iteration_ms or 0)
    assert waits or (fp8.iteration_ms or 0) < (bf16.iteration_ms or 0)
