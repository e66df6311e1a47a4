"""The shipped example inputs say what their comments say, and read without a warning."""

from pathlib import Path

import pytest

from tasks.resolve import resolve_cluster, resolve_workload

EXAMPLES = Path(__file__).parents[3] / "examples"
WORKLOADS = sorted((EXAMPLES / "workloads").glob("*.yaml"))
CLUSTERS = sorted((EXAMPLES / "clusters").glob("*.yaml"))


@pytest.mark.parametrize("path", WORKLOADS, ids=lambda path: path.stem)
def test_example_workloads_read_without_a_warning(path: Path) -> None:
    workload = resolve_workload(path, env={})
    assert workload.warnings == ()
    assert workload.files.keys() > {str(path)}


@pytest.mark.parametrize("path", CLUSTERS, ids=lambda path: path.stem)
def test_example_clusters_read_without_a_warning(path: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    resolved = resolve_cluster(path, env={"HOME": str(tmp_path)})
    assert resolved.warnings == ()
    assert resolved.cluster.name == path.stem
    assert resolved.cluster.hbm_capacity_gb == resolved.cluster.gpu.hbm_capacity_gb


def test_the_examples_are_what_they_are_named_after() -> None:
    names = {path.stem: resolve_workload(path, env={}).architecture.name for path in WORKLOADS}
    assert names == {
        "deepseek_v3": "deepseek_v3",
        "llama3.1_70B": "llama3.1_70B",
        "mixtral_8x22B": "mixtral_8x22B_v0.1",
    }
    sizes = {path.stem: resolve_cluster(path, env={}).cluster.world_size for path in CLUSTERS}
    assert sizes == {"h100_8nodes": 64, "mi325x_8nodes": 64, "mi355x_4nodes": 32}


def test_the_layout_of_the_example_is_the_one_its_comment_describes() -> None:
    base = resolve_workload(EXAMPLES / "workloads" / "deepseek_v3.yaml", env={}).baseline
    assert (base.pp, base.vpp, base.pp_schedule) == (16, 2, "interleaved")


def test_the_example_network_fits_the_example_cluster(tmp_path: Path) -> None:
    text = (EXAMPLES / "clusters" / "h100_8nodes.yaml").read_text()
    folder = tmp_path / "clusters"
    folder.mkdir()
    (tmp_path / "hardware").symlink_to(EXAMPLES / "hardware")
    (folder / "c.yaml").write_text(text.replace("# hardware_config:", "hardware_config:"))
    resolved = resolve_cluster(folder / "c.yaml", env={"HOME": str(tmp_path)})
    assert resolved.cluster.network.pod_bw == 25
    assert resolved.warnings == ()
