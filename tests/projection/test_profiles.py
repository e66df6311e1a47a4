import math

import pytest
import yaml

from projection.profiles import achievable, at_clock, gpu_names, gpu_profile, network_profile
from schemas.errors import ClusterError

FORMATS = {
    # CUs, MHz, HBM GB/s, GB, BF16 and FP8 TFLOP/s, node GB/s, reduction FLOP/s
    "mi300x": (304, 2100, 5300, 192, 1307, 2614, 448, 163e12),
    "mi325x": (304, 2100, 6000, 256, 1307, 2614, 448, 163e12),
    "mi350x": (256, 2200, 8000, 288, 2307, 4614, 537.6, 144e12),
    "mi355x": (256, 2400, 8000, 288, 2517, 5033, 537.6, 157e12),
}


@pytest.mark.parametrize("name", FORMATS)
def test_amd_profiles_hold_the_published_numbers(name: str) -> None:
    gpu, network = gpu_profile(name), network_profile(name)
    cus, clock, hbm, capacity, bf16, fp8, node_bw, vector = FORMATS[name]
    assert (gpu.compute_units, gpu.clock_mhz, gpu.hbm_gb_per_s) == (cus, clock, hbm)
    assert (gpu.hbm_capacity_gb, gpu.bf16_tflops, gpu.fp8_tflops) == (capacity, bf16, fp8)
    assert gpu.num_xcd == 8
    assert (network.node_bw, network.node_lat, network.vector_flops) == (node_bw, 0.45, vector)
    assert (network.pod_bw, network.pod_lat) == (50, 2.0)
    assert (network.cluster_bw, network.cluster_lat) == (25, 10)
    assert (network.node_size, network.pod_size, network.nics_per_node) == (8, 64, 8)
    assert network.node_topology == "mesh"
    assert not network.switch_topology


@pytest.mark.parametrize("name", gpu_names())
def test_peak_is_what_the_units_do_at_the_stated_clock(name: str) -> None:
    """Matrix FLOPs per unit and cycle are a power of two on every machine so far."""
    gpu = gpu_profile(name)
    per_cycle = gpu.bf16_tflops * 1e6 / (gpu.compute_units * gpu.clock_mhz)
    assert per_cycle == pytest.approx(2 ** round(math.log2(per_cycle)), rel=0.002)


@pytest.mark.parametrize("name", gpu_names())
def test_usable_memory_is_below_nameplate_and_sources_are_named(name: str) -> None:
    gpu = gpu_profile(name)
    assert 0.97 * gpu.hbm_capacity_gb < gpu.usable_hbm_gb < gpu.hbm_capacity_gb
    assert any(source.startswith("usable_hbm_gb") for source in gpu.sources)


@pytest.mark.parametrize("name", gpu_names())
def test_every_derate_has_a_source_and_is_marked_uncalibrated(name: str) -> None:
    factors = achievable(gpu_profile(name))
    stated = set(type(factors).model_fields) - {"gpu", "calibrated", "sources"}
    assert set(factors.sources) == stated
    assert not factors.calibrated
    assert factors.gpu == name


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("MI355X", "mi355x"),
        ("AMD Instinct MI300X", "mi300x"),
        ("h100", "h100-sxm"),
        ("H100 SXM5", "h100-sxm"),
        ("a100", "a100-80g"),
        ("NVIDIA A100-SXM4-80GB", "a100-80g"),
        ("GB200 NVL72", "gb200"),
    ],
)
def test_usual_spellings_are_understood(spelling: str, name: str) -> None:
    assert gpu_profile(spelling).name == name


@pytest.mark.parametrize(("wrong", "nearest"), [("mi356x", "mi355x"), ("h1000", "h100-sxm")])
def test_unknown_gpu_is_refused_with_the_nearest_spelling(wrong: str, nearest: str) -> None:
    for look_up in (gpu_profile, network_profile):
        with pytest.raises(ClusterError, match="unknown GPU") as refused:
            look_up(wrong)
        assert nearest in str(refused.value.hint)


def test_h100_is_not_served_for_h20() -> None:
    with pytest.raises(ClusterError):
        gpu_profile("h20")


USER_GPU = """
gpu:
  name: mi999
  vendor: amd
  arch: gfx950
  compute_units: 256
  clock_mhz: 2000
  lds_bytes: 163840
  l2_bytes: 4194304
  bf16_tflops: 2000
  hbm_gb_per_s: 9000
  hbm_capacity_gb: 300
  usable_hbm_gb: 298
  vector_tflops: 150
"""


def test_user_profile_is_read_and_has_no_shipped_derates() -> None:
    gpu = gpu_profile("MI999", USER_GPU)
    assert gpu.fp8_tflops is None
    with pytest.raises(ClusterError, match="no calibration ships"):
        achievable(gpu)


def test_user_profile_under_another_name_is_refused() -> None:
    with pytest.raises(ClusterError, match="describes 'mi999'"):
        gpu_profile("mi998", USER_GPU)


def test_misspelled_key_of_a_user_profile_names_the_right_one() -> None:
    with pytest.raises(ClusterError, match="unknown key 'compute_unit'") as refused:
        gpu_profile("mi999", USER_GPU.replace("compute_units", "compute_unit"))
    assert "compute_units" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"clock_mhz": 1e30}, "clock_mhz: expected at most 10000"),
        ({"bf16_tflops": 1e-300}, "bf16_tflops: expected at least 0.01"),
        ({"hbm_gb_per_s": 1e300}, "hbm_gb_per_s: expected at most 1000000"),
        ({"compute_units": "many"}, "compute_units: expected a whole number"),
    ],
)
def test_numbers_no_gpu_has_are_refused(wrong: dict[str, object], says: str) -> None:
    profile = gpu_profile("mi300x").model_dump(mode="json") | wrong
    with pytest.raises(ClusterError) as refused:
        gpu_profile("", yaml.safe_dump(profile))
    assert says in str(refused.value)


def test_broken_yaml_is_one_line() -> None:
    with pytest.raises(ClusterError) as refused:
        gpu_profile("mi999", "gpu: [1, 2")
    assert "\n" not in str(refused.value)


def test_smaller_box_keeps_its_nics_per_gpu_and_a_rack_keeps_its_fabric() -> None:
    four = network_profile("h100", gpus_per_node=4)
    assert (four.node_size, four.nics_per_node) == (4, 4)
    assert network_profile("gb200", gpus_per_node=4).node_size == 72
    assert network_profile("mi300x", gpus_per_node=4).node_size == 8
    with pytest.raises(ClusterError, match="gpus_per_node is 16"):
        network_profile("h100", gpus_per_node=16)


def test_clock_scales_matrix_and_vector_peaks_but_not_memory() -> None:
    gpu = gpu_profile("mi355x")
    slow = at_clock(gpu, 1200)
    assert slow.bf16_tflops == pytest.approx(gpu.bf16_tflops / 2)
    assert slow.fp8_tflops == pytest.approx(5033 / 2)
    assert slow.hbm_gb_per_s == gpu.hbm_gb_per_s
    a100 = at_clock(gpu_profile("a100"), 1000)
    assert a100.fp8_tflops is None


def test_tile_model_has_its_own_factor_where_origami_sets_the_first() -> None:
    gpu = gpu_profile("mi355x")
    assert achievable(gpu, "tile").gemm_bf16 < achievable(gpu, "origami").gemm_bf16
    assert achievable(gpu, "origami") == achievable(gpu)
    h100 = gpu_profile("h100")
    assert achievable(h100, "tile") == achievable(h100)
