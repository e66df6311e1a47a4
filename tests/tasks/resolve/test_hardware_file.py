from pathlib import Path

import pytest
import yaml

from projection.profiles import gpu_names, network_profile
from schemas.cluster import Network
from schemas.errors import ClusterError

FULL = {
    "node_bw": 448.0,
    "node_lat": 0.45,
    "pod_bw": 50.0,
    "pod_lat": 2.0,
    "cluster_bw": 25.0,
    "cluster_lat": 10.0,
    "node_size": 8,
    "pod_size": 64,
    "nics_per_node": 8,
    "switch_topology": False,
    "node_topology": "mesh",
    "vector_flops": 163.0e12,
}
CLUSTER = """target_cluster:
  gpu_arch: mi325x
  hardware_config: {}
optimization:
  hbm_capacity_gb: 256
"""


@pytest.fixture
def wired(cluster, tmp_path: Path):
    """Resolves a cluster whose hardware file has the given mapping or text."""

    def run(hardware, name: str = "net.yaml"):
        text = hardware if isinstance(hardware, str) else yaml.safe_dump(hardware)
        (tmp_path / "cwd" / name).write_text(text)
        return cluster(CLUSTER.replace("{}", name))

    return run


def refusal(wired, hardware) -> str:
    with pytest.raises(ClusterError) as caught:
        wired(hardware)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_every_key_is_honoured(wired) -> None:
    for key, value in FULL.items():
        other = {
            "switch_topology": True,
            "node_topology": "switch",
            "node_size": 16,
            "pod_size": 512,
        }.get(key, value * 2 if isinstance(value, int | float) else value)
        resolved = wired({"hardware_config": FULL | {key: other}})
        assert getattr(resolved.cluster.network, key) == other
        assert resolved.warnings == ()


def test_the_hardware_file_is_looked_for_in_three_places(cluster, wired, tmp_path: Path) -> None:
    (tmp_path / "clusters").mkdir(exist_ok=True)
    text = CLUSTER.replace("{}", "somewhere/mi325x.yaml")
    shipped = cluster(text)
    assert shipped.cluster.network == network_profile("mi325x", 8)
    assert len(shipped.files) == 1
    for number, folder in enumerate(("clusters", "cwd"), start=1):
        where = tmp_path / folder / "somewhere"
        where.mkdir()
        hardware = {"hardware_config": FULL | {"node_bw": number}}
        (where / "mi325x.yaml").write_text(yaml.safe_dump(hardware))
        assert cluster(text).cluster.network.node_bw == number


def test_no_hardware_file_is_the_gpus_own_network(cluster) -> None:
    for name in gpu_names():
        resolved = cluster(f"target_cluster: {{gpu_arch: {name}, gpus_per_node: 4}}\n")
        assert resolved.cluster.network == network_profile(name, 4)


def test_what_a_file_leaves_out_is_the_gpus_own_and_said(wired) -> None:
    resolved = wired({"hardware_config": {"node_bw": "100", "pod_lat": None}})
    expected = network_profile("mi325x", 8).model_copy(update={"node_bw": 100.0})
    assert resolved.cluster.network == expected
    (warning,) = resolved.warnings
    assert warning.startswith("net.yaml: node_lat, pod_bw, pod_lat")
    assert warning.endswith("not given, taken from mi325x's")


def test_a_network_of_another_gpu_is_said(cluster) -> None:
    (warning,) = cluster(CLUSTER.replace("{}", "mi355x.yaml")).warnings
    assert "the network of mi355x around GPUs of mi325x" in warning


@pytest.mark.parametrize(
    ("hardware", "says"),
    [
        ({"hardware_config": FULL | {"nod_bw": 1}}, "nod_bw: unknown key; did you mean node_bw?"),
        (
            {"hardware_config": FULL | {"node_bw": "fast"}},
            "node_bw: expected a number, got 'fast'",
        ),
        ({"hardware_config": FULL | {"node_bw": 0}}, "node_bw: expected at least 0.01, got 0"),
        ({"hardware_config": FULL | {"node_bw": 1e-300}}, "expected at least 0.01, got 1e-300"),
        ({"hardware_config": FULL | {"pod_bw": 1e300}}, "expected at most 1000000, got 1e+300"),
        ({"hardware_config": FULL | {"node_lat": 1e300}}, "expected at most 1000000, got 1e+300"),
        ({"hardware_config": FULL | {"vector_flops": 1e-300}}, "expected at least 1000000000, got"),
        ({"hardware_config": FULL | {"node_bw": True}}, "expected another value, got true"),
        (
            {"hardware_config": FULL | {"node_topology": "ring"}},
            "node_topology: expected one of 'mesh', 'switch', got 'ring'",
        ),
        ({"hardware_config": FULL | {"node_size": 4}}, "4 GPUs, but the cluster has 8 per node"),
        ({"hardware_config": FULL | {"pod_size": 4}}, "4 GPUs are fewer than a node's 8"),
        (
            {"hardware_config": FULL | {"nics_per_node": 1.5}},
            "nics_per_node: expected a whole number, got 1.5",
        ),
        ({"hardware_config": []}, "expected a mapping under hardware_config"),
        ({"hardware": FULL}, "expected a mapping under hardware_config"),
        ({"hardware_config": FULL, "x": 1}, "x: unknown key; everything stands under"),
        ("hardware_config:\n  node_bw: 1\n  node_bw: 2\n", "net.yaml:3: the key 'node_bw' is set"),
        ("", "net.yaml: the file is empty"),
    ],
)
def test_a_mistake_is_one_line_with_its_place(wired, hardware, says: str) -> None:
    message = refusal(wired, hardware)
    assert message.startswith("net.yaml")
    assert says in message


def test_a_file_that_is_nowhere_says_where_it_was_looked_for(cluster) -> None:
    with pytest.raises(ClusterError) as caught:
        cluster(CLUSTER.replace("{}", "nowhere/mi999x.yaml"))
    message = str(caught.value)
    assert (
        "cluster.yaml:3: target_cluster.hardware_config: no such file 'nowhere/mi999x.yaml'"
        in message
    )
    assert "among the shipped ones (a100-80g, b200" in message


def test_the_keys_are_those_of_the_network() -> None:
    assert set(FULL) == set(Network.model_fields)
