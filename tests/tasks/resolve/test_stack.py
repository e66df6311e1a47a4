"""The software stack: what files of a host say, and what of it is recorded."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from schemas.cluster import Stack
from tasks.inputs import Inputs, resolve_pair
from tasks.resolve.host_software import Host, software_of
from tests.end_to_end.files import write_inputs
from tests.tasks.resolve.hosts import installed, rocm_tree, written

TORCH = "2.9.0+rocm6.4"


def host(tmp_path: Path) -> Host:
    root = tmp_path / "host"
    return Host(root / "rocm", root / "cuda", root / "usr", (str(root / "site"),))


def versions(at: Host, vendor: str = "amd") -> dict[str, str]:
    return {name: found.version for name, found in software_of(at, vendor, "megatron").items()}


def test_a_host_without_anything_has_nothing(tmp_path: Path) -> None:
    assert versions(host(tmp_path)) == {}
    assert versions(host(tmp_path), "nvidia") == {}


def test_rocm_and_its_libraries_are_read_from_their_own_files(tmp_path: Path) -> None:
    at = host(tmp_path)
    rocm_tree(at.rocm)
    found = software_of(at, "amd", "megatron")
    assert {name: one.version for name, one in found.items()} == {
        "rocm": "6.4.1-83",
        "hipblaslt": "0.12.1-4d8b2a1f",
        "rccl": "2.22.3",
    }
    assert found["rocm"].where == str(at.rocm / ".info/version")
    assert found["rccl"].where == str(at.rocm / "include/rccl/rccl.h")


def test_without_headers_a_librarys_file_name_has_its_version(tmp_path: Path) -> None:
    at = host(tmp_path)
    rocm_tree(at.rocm)
    (at.rocm / "include/rccl/rccl.h").unlink()
    (at.rocm / "include/hipblaslt/hipblaslt-version.h").unlink()
    assert versions(at) == {"rocm": "6.4.1-83", "hipblaslt": "0.12.60401", "rccl": "1.0.60401"}


@pytest.mark.parametrize("text", ["", "unknown\n", "\x00\xff" * 40, "7.0 and more"])
def test_a_version_file_that_holds_none_is_none(tmp_path: Path, text: str) -> None:
    at = host(tmp_path)
    written(at.rocm / ".info/version", text)
    assert versions(at) == {}


def test_newer_native_packages_keep_it_below_core(tmp_path: Path) -> None:
    at = host(tmp_path)
    rocm_tree(at.rocm / "core", "7.14.0")
    assert versions(at)["rocm"] == "7.14.0"
    assert versions(at)["rccl"] == "2.22.3"


def test_libraries_in_torchs_wheel_are_the_ones_that_run(tmp_path: Path) -> None:
    at = host(tmp_path)
    rocm_tree(at.rocm, "7.0.0")
    record = "torch/__init__.py,sha256=AAAA,1\ntorch/lib/librccl.so,sha256=Zm9vYmFyMTIzNDU2Nzg,9\n"
    installed(Path(at.packages[0]), "torch", TORCH, record)
    found = versions(at)
    assert found["torch"] == TORCH
    assert found["rccl"] == f"in torch {TORCH}, sha256 Zm9vYmFyMTIz"
    assert found["hipblaslt"] == "0.12.1-4d8b2a1f"  # the wheel lists none
    assert found["rocm"] == "7.0.0"


def test_a_wheel_of_torch_alone_says_which_rocm_it_was_built_for(tmp_path: Path) -> None:
    at = host(tmp_path)
    installed(Path(at.packages[0]), "torch", TORCH)
    assert versions(at) == {"torch": TORCH, "rocm": "6.4"}


def test_wheels_of_the_rocm_sdk_are_found_beside_torch(tmp_path: Path) -> None:
    at = host(tmp_path)
    site = Path(at.packages[0])
    written(site / "_rocm_sdk_core/.info/version", "7.13.0\n")
    written(site / "_rocm_sdk_libraries_gfx94X_dcgpu/lib/libhipblaslt.so.1")
    written(site / "_rocm_sdk_libraries_gfx94X_dcgpu/lib/librccl.so.1")
    installed(site, "rocm-sdk-libraries-gfx94X-dcgpu", "7.13.0a20260502")
    libraries = "in rocm-sdk-libraries-gfx94X-dcgpu 7.13.0a20260502"
    assert versions(at) == {"rocm": "7.13.0", "hipblaslt": libraries, "rccl": libraries}


def test_the_framework_is_what_is_installed_of_it(tmp_path: Path) -> None:
    at = host(tmp_path)
    installed(Path(at.packages[0]), "megatron-core", "0.14.0")
    assert versions(at)["framework"] == "megatron-core 0.14.0"
    installed(Path(at.packages[0]), "primus", "0.3.0")
    assert versions(at)["framework"] == "primus 0.3.0, megatron-core 0.14.0"
    installed(Path(at.packages[0]), "torchtitan", "0.2.0")
    titan = software_of(at, "amd", "torchtitan")
    assert titan["framework"].version == "primus 0.3.0, torchtitan 0.2.0"


def test_a_package_without_metadata_is_none(tmp_path: Path) -> None:
    at = host(tmp_path)
    (Path(at.packages[0]) / "torch-2.9.0.dist-info").mkdir(parents=True)
    assert versions(at) == {}


def test_nvidias_wheels_win_over_the_toolkit(tmp_path: Path) -> None:
    at = host(tmp_path)
    toolkit = '{"cuda": {"version": "12.4.1"}, "libcublas": {"version": "12.4.5.8"}}'
    written(at.cuda / "version.json", toolkit)
    written(at.system / "include/nccl.h", "#define NCCL_MAJOR 2\n#define NCCL_MINOR 21\n")
    written(at.system / "lib/x86_64-linux-gnu/libnccl.so.2.21.5")
    assert versions(at, "nvidia") == {"cuda": "12.4.1", "cublas": "12.4.5.8", "nccl": "2.21.5"}
    site = Path(at.packages[0])
    for name, version in (("cublas", "12.6.4.1"), ("nccl", "2.23.4"), ("cuda-runtime", "12.6.77")):
        installed(site, f"nvidia-{name}-cu12", version)
    installed(site, "torch", "2.9.0+cu126")
    assert versions(at, "nvidia") == {
        "cuda": "12.6.77",
        "cublas": "12.6.4.1",
        "nccl": "2.23.4",
        "torch": "2.9.0+cu126",
    }


@pytest.mark.parametrize("told", ["[]", "{", '{"cuda": "12"}', '{"cuda": {"version": 12}}'])
def test_a_version_json_of_another_kind_says_nothing(tmp_path: Path, told: str) -> None:
    at = host(tmp_path)
    written(at.cuda / "version.json", told)
    assert versions(at, "nvidia") == {}
    installed(Path(at.packages[0]), "torch", "2.9.0+cu126")
    assert versions(at, "nvidia")["cuda"] == "12.6"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of installed packages that this process looks in first, and nothing beside it."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setattr("sys.path", [str(folder)])
    return folder


def resolved(folder: Path, *, detect: bool = False, **sections: Any) -> Inputs:
    env = {"ROCM_PATH": str(folder / "rocm")}
    files = write_inputs(folder, **sections)
    return resolve_pair(*files, env=env, gemm_backend="tile", detect=detect)


HOST = {"available_for_benchmark": {"has_gpu": True}}


def test_on_the_benchmark_host_what_is_not_declared_is_detected(tmp_path: Path, site: Path) -> None:
    rocm_tree(tmp_path / "rocm")
    installed(site, "torch", TORCH)
    installed(site, "megatron-core", "0.14.0")
    inputs = resolved(tmp_path, **HOST, stack={"rccl": "2.30"})
    assert inputs.cluster.stack == Stack(
        rocm="6.4.1-83",
        hipblaslt="0.12.1-4d8b2a1f",
        rccl="2.30",
        torch=TORCH,
        framework="megatron-core 0.14.0",
    )
    origin = inputs.signature.origin
    assert origin["rocm"] == f"detected ({tmp_path / 'rocm/.info/version'})"
    assert origin["rccl"] == "declared (cluster file)"
    assert origin["torch"] == "detected (package metadata of torch)"
    (warning,) = inputs.warnings
    assert warning.endswith(
        f"stack.rccl: 2.30 is declared and counts, but this host has 2.22.3"
        f" ({tmp_path / 'rocm/include/rccl/rccl.h'})"
    )


def test_elsewhere_nothing_is_detected_unless_asked(tmp_path: Path, site: Path) -> None:
    rocm_tree(tmp_path / "rocm")
    installed(site, "torch", TORCH)
    installed(site, "megatron-core", "0.14.0")
    without = resolved(tmp_path)
    assert without.cluster.stack == Stack()
    assert set(without.signature.origin.values()) == {"none"}
    asked = resolved(tmp_path, detect=True)
    assert asked.cluster.stack.rocm == "6.4.1-83"
    assert asked.signature.hashes.stack != without.signature.hashes.stack
    assert asked.signature.hashes.cluster == without.signature.hashes.cluster


def test_an_entry_may_ask_to_be_detected(tmp_path: Path, site: Path) -> None:
    rocm_tree(tmp_path / "rocm")
    inputs = resolved(tmp_path, stack={"rocm": "detect", "torch": "2.8", "nccl": "detect"})
    assert inputs.cluster.stack == Stack(rocm="6.4.1-83", torch="2.8")
    (warning,) = inputs.warnings
    assert "stack: nccl: not found on this host and recorded as none" in warning


@pytest.mark.parametrize("declared", ["6.4", "6.4.1", "6.4.1-83"])
def test_a_version_declared_in_short_is_the_same_version(
    tmp_path: Path, site: Path, declared: str
) -> None:
    rocm_tree(tmp_path / "rocm")
    stack = {"rocm": declared, "hipblaslt": "0.12", "rccl": "2.22.3"}
    stack |= {"torch": "none", "framework": "none"}
    assert resolved(tmp_path, **HOST, stack=stack).warnings == ()
    (wrong,) = resolved(tmp_path, **HOST, stack={**stack, "rocm": "6.4.10"}).warnings
    assert "6.4.10 is declared and counts, but this host has 6.4.1-83" in wrong


def test_declared_as_none_is_not_detected(tmp_path: Path, site: Path) -> None:
    rocm_tree(tmp_path / "rocm")
    inputs = resolved(tmp_path, **HOST, stack={"rocm": "none"})
    assert inputs.cluster.stack.rocm == "none"
    assert inputs.signature.origin["rocm"] == "declared (cluster file)"
    assert "rocm: none is declared and counts, but this host has 6.4.1" in inputs.warnings[0]


def test_nvidias_libraries_change_a_signature_only_where_they_are_said(tmp_path: Path) -> None:
    plain = resolved(tmp_path).signature
    assert set(plain.stack) >= {"rocm", "torch"}
    assert not {"cuda", "cublas", "nccl"} & (plain.stack.keys() | plain.origin.keys())
    said = resolved(tmp_path, stack={"nccl": "2.23.4"}).signature
    assert said.hashes.stack != plain.hashes.stack
    assert said.origin["nccl"] == "declared (cluster file)"


def test_the_place_of_a_stack_in_the_file_is_named(tmp_path: Path, site: Path) -> None:
    rocm_tree(tmp_path / "rocm")
    workload, cluster = write_inputs(tmp_path, **HOST, target_cluster={"stack": {"rocm": "7.0"}})
    line = 1 + cluster.read_text().splitlines().index("  stack:")
    assert yaml.safe_load(cluster.read_text())["target_cluster"]["stack"] == {"rocm": "7.0"}
    inputs = resolve_pair(workload, cluster, env={"ROCM_PATH": str(tmp_path / "rocm")})
    assert any(f"cluster.yaml:{line}: target_cluster.stack.rocm: 7.0" in w for w in inputs.warnings)
