import subprocess
import sys

import pytest

from projection.gemm import GemmModel, gemm_model
from projection.gemm.origami import unavailable_reason
from projection.gemm.tile import TileGemm
from projection.operations import Dtype
from projection.profiles import achievable, gpu_names, gpu_profile
from schemas.errors import ClusterError, EnvironmentMissing, UserError

needs_origami = [
    pytest.mark.origami,
    pytest.mark.skipif(
        unavailable_reason(gpu_profile("mi300x")) is not None, reason="rocm-origami missing"
    ),
]


def tflops(
    model: GemmModel, m: int, n: int, k: int, dtype: Dtype = "bf16", batch: int = 1
) -> float:
    return 2 * m * n * k * batch / model.time_ms(m, n, k, batch=batch, dtype=dtype) * 1e-9


BACKENDS = [
    pytest.param("tile"),
    pytest.param("origami", marks=needs_origami),
]


@pytest.mark.parametrize("name", gpu_names())
def test_tile_rates_stay_below_the_peak_and_large_gemms_come_near_it(name: str) -> None:
    gpu = gpu_profile(name)
    model = TileGemm(gpu)
    rates = [tflops(model, s, s, s) / gpu.bf16_tflops for s in (512, 2048, 8192, 16384)]
    assert rates == sorted(rates)
    assert rates[-1] < 1
    assert rates[-1] > (0.95 if gpu.vendor == "nvidia" else 0.78)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["mi300x", "mi355x"])
def test_fp8_is_faster_where_multiplying_is_the_limit(name: str, backend: str) -> None:
    model = gemm_model(gpu_profile(name), backend)  # type: ignore[arg-type]
    for shape in ((8192, 8192, 8192), (4096, 28672, 8192), (16384, 4096, 14336)):
        gain = model.time_ms(*shape) / model.time_ms(*shape, dtype="fp8")
        assert 1.6 < gain < 2.05


@pytest.mark.parametrize("name", ["h100", "h200", "b200", "gb200"])
def test_fp8_is_faster_on_hopper_and_later(name: str) -> None:
    model = TileGemm(gpu_profile(name))
    gain = model.time_ms(8192, 8192, 8192) / model.time_ms(8192, 8192, 8192, dtype="fp8")
    assert 1.7 < gain < 2.05


def test_fp8_on_a100_is_refused_by_name() -> None:
    with pytest.raises(UserError, match="a100-80g has no FP8"):
        TileGemm(gpu_profile("a100")).time_ms(4096, 4096, 4096, dtype="fp8")


@pytest.mark.parametrize("backend", BACKENDS)
def test_nonsense_shapes_are_refused(backend: str) -> None:
    model = gemm_model(gpu_profile("mi300x"), backend)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="is not a GEMM"):
        model.time_ms(0, 128, 128)


def test_wave_quantisation_costs_a_whole_wave() -> None:
    """256 CUs take 256 tiles at once; one tile more takes twice as long."""
    model = TileGemm(gpu_profile("mi355x"))
    full = model.time_ms(256 * 16, 256 * 16, 8192)
    more = model.time_ms(256 * 16 + 1, 256 * 16, 8192)
    assert full < more < 2 * full
    assert more > 1.2 * full


def test_thin_gemm_is_bound_by_reading_its_weights() -> None:
    gpu = gpu_profile("mi300x")
    time_ms = TileGemm(gpu).time_ms(16, 28672, 8192)
    floor_ms = 28672 * 8192 * 2 / gpu.hbm_gb_per_s * 1e-6
    assert floor_ms < time_ms < 1.6 * floor_ms


def test_grouped_gemm_fills_waves_that_its_members_alone_would_not() -> None:
    model = TileGemm(gpu_profile("mi355x"))
    together = model.time_ms(512, 2048, 7168, batch=32)
    alone = 32 * model.time_ms(512, 2048, 7168)
    assert together < 0.7 * alone


def test_splitting_k_keeps_a_small_output_from_idling_the_gpu() -> None:
    """Sixteen tiles of 64 x 64 alone would occupy 16 of 132 SMs."""
    gpu = gpu_profile("h100")
    assert tflops(TileGemm(gpu), 256, 256, 65536) > 2 * gpu.bf16_tflops * 16 / 132


def test_unknown_architecture_is_refused_not_guessed() -> None:
    stranger = gpu_profile("h100").model_copy(update={"arch": "sm_70", "name": "v100"})
    with pytest.raises(ClusterError, match="do not know arch 'sm_70'"):
        TileGemm(stranger)


def test_auto_takes_the_tile_model_on_nvidia() -> None:
    assert gemm_model(gpu_profile("h100"), "auto").name == "tile"


def test_origami_by_name_on_nvidia_is_an_environment_error() -> None:
    with pytest.raises(EnvironmentMissing, match="not sm_90"):
        gemm_model(gpu_profile("h100"), "origami")


def test_missing_origami_is_an_error_by_name_and_the_tile_model_in_auto() -> None:
    """In an interpreter that cannot see the package."""
    code = """
import sys
from importlib import util
find = util.find_spec
import projection.gemm.origami as module
module.find_spec = lambda name: None
from projection.gemm import gemm_model
from projection.profiles import gpu_profile
gpu = gpu_profile("mi300x")
assert gemm_model(gpu, "auto").name == "tile"
try:
    gemm_model(gpu, "origami")
except Exception as error:
    print(type(error).__name__, error.hint)
"""
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert answer.startswith("EnvironmentMissing")
    assert "pip install" in answer


@pytest.mark.parametrize("name", gpu_names())
def test_factors_put_the_model_at_the_published_rate(name: str) -> None:
    """Over the tile model; AMD's first factor is over Origami, tested beside it."""
    published = {
        "a100-80g": (271, None),
        "h100-sxm": (795, 1403),
        "h200": (829, 1453),
        "b200": (1745, 3433),
        "gb200": (1822, 3616),
        "mi300x": (668, 1159),
        "mi325x": (785, None),
        "mi350x": (1188, None),
        "mi355x": (1565, 3269),
    }
    gpu = gpu_profile(name)
    model, factors = TileGemm(gpu), achievable(gpu, "tile")
    bf16, fp8 = published[name]
    assert tflops(model, 8192, 8192, 8192) * factors.gemm_bf16 == pytest.approx(bf16, rel=0.01)
    if fp8 is not None:
        rate = tflops(model, 8192, 8192, 8192, "fp8") * factors.gemm_fp8
        assert rate == pytest.approx(fp8, rel=0.01)
