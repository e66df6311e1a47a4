"""What `refold signature` says a score depends on, and where it says that came from."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from projection.signature import CLUSTER_IDENTITY, WORKLOAD_IDENTITY
from schemas.architecture import Architecture
from schemas.cluster import Cluster
from schemas.workload import Workload
from tests.end_to_end.files import write_inputs
from tests.flows.inline import Ended, refold_inline
from tests.tasks.resolve.hosts import installed, rocm_tree, written

PAIR = ("workload.yaml", "cluster.yaml", "--gemm-backend", "tile")
Run = Callable[..., Ended]


@pytest.fixture
def refold(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ROCM_PATH", str(rocm_tree(tmp_path / "rocm")))
    monkeypatch.syspath_prepend(str(installed(tmp_path / "site", "torch", "2.9.0+rocm6.4")))
    write_inputs(tmp_path)

    def run(*arguments: object) -> Ended:
        return refold_inline(capsys, *arguments)

    return run


def told(refold: Run, *more: object) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(refold("signature", *PAIR, *more, "--json").out)
    return answer


def origins(answer: dict[str, Any]) -> dict[str, str]:
    return {f"{part['section']}.{part['name']}": part["from"] for part in answer["parts"]}


def test_people_see_three_hashes_and_the_parts_of_each(refold: Run) -> None:
    answer, shown = told(refold), refold("signature", *PAIR).out
    assert all(len(line) <= 100 for line in shown.splitlines())
    for section, digest in answer["hashes"].items():
        assert f"\n{section:<8} {digest}" in shown
    assert "from refold:models/mixtral_8x22B_v0.1.yaml, under workload.yaml:\n" in shown
    assert "moe_layers=[56 × true]" in shown
    assert "from cluster.yaml:\n    num_nodes=4, hbm_capacity_gb=288\n" in shown
    assert "from mi355x's profile, shipped with this Refold:\n    gpu: name=mi355x" in shown
    assert "dropout" not in shown
    assert "attention_dropout=0" in refold("signature", *PAIR, "--all").out


def test_programs_get_every_part_once(refold: Run) -> None:
    answer = told(refold)
    names = [f"{part['section']}.{part['name']}" for part in answer["parts"]]
    assert len(set(names)) == len(names)
    top = {".".join(name.split(".")[:2]) for name in names}
    assert {f"model.{name}" for name in Workload.model_fields.keys() - WORKLOAD_IDENTITY} <= top
    assert {f"cluster.{name}" for name in Cluster.model_fields.keys() - CLUSTER_IDENTITY} <= top
    assert "cluster.gpu" in top
    assert {f"stack.{name}" for name in answer["stack"]} <= top
    of_model = {f"model.architecture.{name}" for name in Architecture.model_fields} & set(names)
    assert len(of_model) == len(Architecture.model_fields) - 1  # its name moves nothing
    assert answer["workload_files"]["workload.yaml"]


def test_each_part_says_where_it_came_from(refold: Run, tmp_path: Path) -> None:
    sections = yaml.safe_load(Path("cluster.yaml").read_text())
    sections["target_cluster"] |= {
        "gpu_clock_mhz": 2000,
        "hardware_config": "fabric.yaml",
        "stack": {"rocm": "7.0"},
        "calibration": "none",
    }
    Path("cluster.yaml").write_text(yaml.safe_dump(sections))
    written(tmp_path / "fabric.yaml", "hardware_config: {pod_bw: 100}\n")
    found = origins(told(refold))
    assert found["cluster.gpu.clock_mhz"] == "gpu_clock_mhz in cluster.yaml"
    assert found["cluster.gpu.arch"] == "mi355x's profile, shipped with this Refold"
    assert found["cluster.network.pod_bw"] == "fabric.yaml"
    assert found["cluster.num_nodes"] == "cluster.yaml"
    assert found["cluster.gpus_per_node"] == "no file (a default)"
    assert found["model.seq_length"] == "workload.yaml, over its presets"
    assert found["stack.rocm"] == "declared (cluster file)"
    assert found["stack.rccl"] == "none"
    assert found["stack.projection"] == "this Refold"
    assert found["stack.gemm"] == "--gemm-backend tile"
    assert found["stack.calibration"] == "calibration: none, so published rates"


def test_detect_shows_what_this_host_would_give(refold: Run) -> None:
    assert told(refold)["stack"]["rocm"] == "none"
    answer = told(refold, "--detect")
    assert answer["stack"]["rocm"] == "6.4.1-83"
    assert answer["stack"]["torch"] == "2.9.0+rocm6.4"
    assert origins(answer)["stack.rocm"].startswith("detected (/")
    shown = refold("signature", *PAIR, "--detect").out
    assert "6.4.1-83" in shown
    assert all(len(line) <= 100 for line in shown.splitlines())


def test_a_lesser_gemm_model_is_noted(refold: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(refold)["stack"]["gemm"].startswith("tile ")
    monkeypatch.setattr("projection.gemm.origami.unavailable_reason", lambda gpu: "it is not here")
    done = refold("signature", *PAIR[:2])
    assert "gemm          tile 1" in done.out
    assert "auto: Origami is not installed" in done.out
    assert "note: GEMM times from the tile model: Origami is not installed" in done.out
