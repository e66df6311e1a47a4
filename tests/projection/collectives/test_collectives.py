from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projection.collectives import NOTHING, Collectives, candidates, price
from projection.operations import CollectiveKind
from projection.placement import Group, Placement, consecutive
from projection.profiles import achievable, gpu_profile, network_profile
from schemas.cluster import Cluster, Network

KINDS: tuple[CollectiveKind, ...] = (
    "allreduce",
    "allgather",
    "reduce_scatter",
    "alltoall",
    "sendrecv",
)
MIB = 2**20
GIB = 2**30
MI300X, MI355X = gpu_profile("mi300x"), gpu_profile("mi355x")


def group(size: int, nodes: int = 1, pods: int = 1) -> Group:
    return Group(size, -(-size // nodes), nodes, pods)


def bus_gb_per_s(kind: CollectiveKind, size: int, num_bytes: float, time_ms: float) -> float:
    """Bus bandwidth as nccl-tests and rccl-tests define it."""
    passes = 2 if kind == "allreduce" else 1
    return passes * (size - 1) / size * num_bytes / time_ms * 1e-6


GROUPS = st.one_of(
    st.integers(2, 8).map(group),
    st.tuples(st.sampled_from([1, 2, 4, 8]), st.sampled_from([2, 3, 4, 8])).map(
        lambda t: group(t[0] * t[1], t[1])
    ),
    st.tuples(st.sampled_from([1, 4, 8]), st.sampled_from([2, 4])).map(
        lambda t: group(t[0] * 8 * t[1], 8 * t[1], t[1])
    ),
)
NETWORKS = st.sampled_from(["mi300x", "mi355x", "h100", "a100", "gb200"])


@given(
    kind=st.sampled_from(KINDS),
    group=GROUPS,
    name=NETWORKS,
    num_bytes=st.floats(1, 1e11),
    factor=st.floats(1, 100),
)
@settings(max_examples=300, deadline=None)
def test_more_bytes_are_never_faster(
    kind: CollectiveKind, group: Group, name: str, num_bytes: float, factor: float
) -> None:
    model = Collectives(network_profile(name), achievable(gpu_profile(name)))
    less, more = model.price(kind, num_bytes, group), model.price(kind, num_bytes * factor, group)
    assert 0 < less.time_ms <= more.time_ms


SLOWER = {
    "node_bw": 0.5,
    "pod_bw": 0.5,
    "cluster_bw": 0.5,
    "node_lat": 3.0,
    "pod_lat": 3.0,
    "cluster_lat": 3.0,
    "vector_flops": 0.5,
}


@given(
    kind=st.sampled_from(KINDS),
    group=GROUPS,
    name=NETWORKS,
    num_bytes=st.floats(1, 1e11),
    field=st.sampled_from(sorted(SLOWER)),
)
@settings(max_examples=400, deadline=None)
def test_a_slower_or_later_link_never_speeds_anything_up(
    kind: CollectiveKind, group: Group, name: str, num_bytes: float, field: str
) -> None:
    network = network_profile(name)
    worse = network.model_copy(update={field: getattr(network, field) * SLOWER[field]})
    factors = achievable(gpu_profile(name))
    before = price(kind, num_bytes, group, network, factors).time_ms
    assert price(kind, num_bytes, group, worse, factors).time_ms >= before


@given(kind=st.sampled_from(KINDS), group=GROUPS, num_bytes=st.floats(1, 1e11))
@settings(max_examples=100, deadline=None)
def test_price_is_the_first_candidate_and_candidates_are_sorted(
    kind: CollectiveKind, group: Group, num_bytes: float
) -> None:
    network, factors = network_profile("mi355x"), achievable(MI355X)
    all_ways = candidates(kind, num_bytes, group, network, factors)
    assert [w.time_ms for w in all_ways] == sorted(w.time_ms for w in all_ways)
    assert price(kind, num_bytes, group, network, factors).time_ms == all_ways[0].time_ms
    assert {w.protocol for w in all_ways} == {"simple", "ll", "ll64", "ll128"}


@pytest.mark.parametrize("kind", KINDS)
def test_group_of_one_and_empty_message_cost_nothing(kind: CollectiveKind) -> None:
    network, factors = network_profile("mi300x"), achievable(MI300X)
    assert price(kind, GIB, Group(1, 1, 1, 1), network, factors) == NOTHING
    assert price(kind, 0, group(8), network, factors).time_ms == 0


@pytest.mark.parametrize(
    ("kind", "nodes", "algorithms"),
    [
        (
            "allreduce",
            1,
            {"ring", "hypercube", "bruck", "single_shot", "reduce_scatter+allgather direct"},
        ),
        (
            "allreduce",
            4,
            {
                "ring",
                "hypercube",
                "bruck",
                "hierarchical",
                "reduce_scatter+allgather direct",
                "reduce_scatter+allgather hierarchical",
            },
        ),
        ("allgather", 4, {"ring", "direct", "bruck", "hierarchical"}),
        ("reduce_scatter", 1, {"ring", "direct", "bruck"}),
        ("alltoall", 1, {"direct", "single_shot"}),
        ("alltoall", 4, {"direct", "hierarchical", "pxn"}),
    ],
)
def test_every_algorithm_of_the_paper_is_tried(
    kind: CollectiveKind, nodes: int, algorithms: set[str]
) -> None:
    network, factors = network_profile("mi355x"), achievable(MI355X)
    tried = {c.algorithm for c in candidates(kind, MIB, group(8 * nodes, nodes), network, factors)}
    assert tried == algorithms


def test_switches_that_add_do_so_for_large_all_reduces_inside_a_node() -> None:
    def ways(name: str, nodes: int) -> set[str]:
        network, factors = network_profile(name), achievable(gpu_profile(name))
        tried = candidates("allreduce", GIB, group(8 * nodes, nodes), network, factors)
        return {way.algorithm for way in tried}

    for name, adds in (("h100", True), ("gb200", True), ("a100", False), ("mi355x", False)):
        assert ("in_switch" in ways(name, 1)) is adds
        assert "in_switch" not in ways(name, 2)
    meshed = network_profile("h100").model_copy(update={"node_topology": "mesh"})
    factors = achievable(gpu_profile("h100"))
    tried = candidates("allreduce", GIB, group(8), meshed, factors)
    assert "in_switch" not in {way.algorithm for way in tried}


@pytest.mark.parametrize("used", [2, 4, 8])
def test_part_of_a_mesh_uses_its_own_links_only(used: int) -> None:
    """g of 8 meshed GPUs have (g - 1)/7 of a GPU's egress: bus bandwidth falls in proportion."""
    network, factors = network_profile("mi300x"), achievable(MI300X)
    priced = price("allgather", 4 * GIB, group(used), network, factors)
    expected = 448 * factors.node_link * (used - 1) / 7
    bus = bus_gb_per_s("allgather", used, 4 * GIB, priced.time_ms)
    assert bus == pytest.approx(expected, rel=0.02)


def test_part_of_a_switch_keeps_its_full_port() -> None:
    network, factors = network_profile("h100"), achievable(gpu_profile("h100"))
    for used in (2, 8):
        priced = price("allgather", 4 * GIB, group(used), network, factors)
        bus = bus_gb_per_s("allgather", used, 4 * GIB, priced.time_ms)
        assert bus == pytest.approx(450 * (factors.gather_link or 0), rel=0.02)


def test_ranks_of_a_node_share_its_nics() -> None:
    network, factors = network_profile("mi355x"), achievable(MI355X)
    half = network.model_copy(update={"nics_per_node": 4})
    spread = Group(8, 1, 8, 1)
    full = price("allgather", 4 * GIB, spread, network, factors).time_ms
    assert price("allgather", 4 * GIB, spread, half, factors).time_ms == pytest.approx(
        2 * full, rel=0.01
    )


def test_extra_nics_help_only_behind_a_switch() -> None:
    network, factors = network_profile("mi355x"), achievable(MI355X)
    double = network.model_copy(update={"nics_per_node": 16})
    switched = double.model_copy(update={"switch_topology": True})
    message = ("sendrecv", GIB, Group(2, 1, 2, 1))
    alone = price(*message, network, factors).time_ms
    assert price(*message, double, factors).time_ms == alone
    assert price(*message, switched, factors).time_ms == pytest.approx(alone / 2, rel=0.01)


def test_message_inside_a_mesh_takes_one_link_and_between_pods_the_slow_one() -> None:
    network, factors = network_profile("mi300x"), achievable(MI300X)
    inside = price("sendrecv", GIB, Group(2, 2, 1, 1), network, factors).time_ms
    assert inside == pytest.approx(GIB / (64 * factors.node_link) * 1e-6, rel=0.01)
    pod = price("sendrecv", GIB, Group(2, 1, 2, 1), network, factors).time_ms
    far = price("sendrecv", GIB, Group(2, 1, 2, 2), network, factors).time_ms
    assert far == pytest.approx(2 * pod, rel=0.01)


def test_a_ring_over_meshed_nodes_is_no_faster_than_its_hops_inside_them() -> None:
    """Eight NICs may carry more than the one link of the mesh that a hop inside a node has."""
    network = network_profile("mi300x").model_copy(update={"pod_bw": 400.0, "cluster_bw": 400.0})
    factors = achievable(gpu_profile("mi300x"), "origami")
    inside = price("sendrecv", GIB, Group(8, 8, 1, 1), network, factors).time_ms
    ring = price("sendrecv", GIB, Group(16, 8, 2, 1), network, factors).time_ms
    between = price("sendrecv", GIB, Group(2, 1, 2, 1), network, factors).time_ms
    assert between < inside <= ring


def test_hierarchy_beats_the_ring_across_slow_pods() -> None:
    """Only the pod's sum crosses pods, a 64th of what a ring sends over each of its rails."""
    network, factors = network_profile("mi355x"), achievable(MI355X)
    slow = network.model_copy(update={"cluster_bw": 1.0})
    best = price("allreduce", GIB, group(128, 16, 2), slow, factors)
    assert best.algorithm == "hierarchical"


def narrowest_us(kind: CollectiveKind, ranks: Sequence[int], domain: int, rate: float) -> float:
    """Microseconds that 10^9 bytes take out of, or into, the domain with the fewest of `ranks`.

    `rate`: of one rank's share of the domain's NICs, in bytes per microsecond. Whatever the
    algorithm, the domain sends its sum and receives that of the others (all-reduce), lacks what
    the others hold (all-gather; reduce-scatter the other way round), or holds what is theirs.
    """
    inside = Counter(rank // domain for rank in ranks).values()
    if len(inside) == 1:
        return 0.0
    few, others = min(inside), (len(ranks) - min(inside)) / len(ranks)
    crossing = {"allreduce": 1.0, "alltoall": few * others}.get(kind, others)
    return 1e9 * crossing / (few * rate)


@given(
    kind=st.sampled_from(["allreduce", "allgather", "reduce_scatter", "alltoall"]),
    sizes=st.tuples(*[st.sampled_from([1, 2, 3, 4, 5, 8, 12])] * 3, st.sampled_from([1, 2, 3, 4])),
    node=st.sampled_from([3, 4, 6, 8]),
    pod_nodes=st.sampled_from([1, 2, 3, 8]),
    nics=st.sampled_from([1, 2, 8, 16]),
    cluster_bw=st.sampled_from([5.0, 25.0, 50.0, 100.0]),
    switched=st.booleans(),
    name=st.sampled_from(["mi355x", "h100"]),
)
@settings(max_examples=300, deadline=None)
def test_no_group_beats_the_narrowest_link_it_must_cross(
    kind: CollectiveKind,
    sizes: tuple[int, int, int, int],
    node: int,
    pod_nodes: int,
    nics: int,
    cluster_bw: float,
    switched: bool,
    name: str,
) -> None:
    tp, cp, dp, pp = sizes
    world = tp * cp * dp * pp
    if world % node:
        return
    network = network_profile(name).model_copy(
        update={
            "node_size": node,
            "pod_size": node * pod_nodes,
            "nics_per_node": nics,
            "cluster_bw": cluster_bw,
            "switch_topology": switched,
        }
    )
    machine = Cluster(
        name="test",
        num_nodes=world // node,
        gpus_per_node=node,
        gpu=gpu_profile(name),
        network=network,
        hbm_capacity_gb=80,
        memory_safety_margin=0.1,
    )
    placement = Placement(machine, tp=tp, cp=cp, pp=pp, dp=dp, ep=cp * dp, etp=tp, edp=1)
    factors = achievable(gpu_profile(name))
    model = Collectives(network, factors)
    share = nics / node if switched else min(1.0, nics / node)
    pod = network.pod_bw * share * factors.pod_link * 1e3
    cluster = min(pod, network.cluster_bw * share * factors.cluster_link * 1e3)
    for group in ("tp", "cp", "dp"):
        bound_us = max(
            max(
                narrowest_us(kind, ranks, node, pod),
                narrowest_us(kind, ranks, node * pod_nodes, cluster),
            )
            for ranks in placement.ranks(group)
        )
        priced = model.price(kind, 1e9, placement.group(group))
        assert priced.time_ms * 1e3 >= bound_us * (1 - 1e-9), (group, priced)


def test_a_group_that_ends_in_the_middle_of_a_node_waits_for_it() -> None:
    """Eight ranks on one node and four on the next: four NICs carry what four carry alone."""
    network, factors = network_profile("mi355x"), achievable(MI355X)
    uneven = price("allreduce", 4 * GIB, consecutive(12, 8, 64), network, factors).time_ms
    even = price("allreduce", 4 * GIB, Group(12, 4, 3, 1), network, factors).time_ms
    assert uneven > 0.7 * even
    assert uneven > 4 * GIB / (4 * 50 * factors.pod_link) * 1e-6


def test_alltoall_within_a_node_is_far_cheaper_than_across_nodes() -> None:
    network, factors = network_profile("mi355x"), achievable(MI355X)
    inside = price("alltoall", 384 * MIB, group(8), network, factors).time_ms
    across = price("alltoall", 384 * MIB, group(32, 4), network, factors).time_ms
    assert 4 < across / inside < 12


MEASURED = [
    # GPU, kind, ranks, nodes, bytes, bus GB/s, tolerance: from rccl-tests and nccl-tests.
    ("mi300x", "allreduce", 8, 1, GIB, 314, 0.05),
    ("mi300x", "allreduce", 8, 1, 256 * MIB, 303, 0.10),
    ("mi300x", "allreduce", 16, 2, 16 * GIB, 357, 0.05),
    ("mi300x", "allreduce", 16, 2, 256 * MIB, 293, 0.25),
    ("mi325x", "allreduce", 32, 4, 16 * GIB, 350.6, 0.05),
    ("mi325x", "allreduce", 64, 8, 16 * GIB, 350.5, 0.05),
    ("mi325x", "allreduce", 64, 8, 4 * GIB, 344, 0.05),
    ("mi355x", "allreduce", 16, 2, 8 * GIB, 369, 0.05),
    ("mi355x", "allreduce", 16, 2, 256 * MIB, 309, 0.25),
    ("a100", "allreduce", 8, 1, GIB, 228, 0.05),
    ("h100", "allreduce", 8, 1, 256 * MIB, 436, 0.10),
    ("h100", "allgather", 8, 1, 256 * MIB, 250, 0.05),
    ("h100", "reduce_scatter", 8, 1, 256 * MIB, 250, 0.05),
    ("h100", "allreduce", 16, 2, 256 * MIB, 362, 0.25),
    ("gb200", "allgather", 72, 1, 16 * GIB, 681, 0.05),
    ("gb200", "reduce_scatter", 72, 1, 16 * GIB, 703, 0.05),
    ("gb200", "alltoall", 72, 1, 16 * GIB, 651, 0.10),
    ("gb200", "allreduce", 4, 1, 16 * GIB, 687, 0.05),
    ("gb200", "allreduce", 72, 1, 16 * GIB, 905, 0.05),
]


@pytest.mark.parametrize(
    ("name", "kind", "size", "nodes", "num_bytes", "bus", "tolerance"), MEASURED
)
def test_large_messages_run_at_the_published_bus_bandwidth(
    name: str,
    kind: CollectiveKind,
    size: int,
    nodes: int,
    num_bytes: float,
    bus: float,
    tolerance: float,
) -> None:
    network = network_profile(name)
    priced = price(kind, num_bytes, group(size, nodes), network, achievable(gpu_profile(name)))
    modelled = bus_gb_per_s(kind, size, num_bytes, priced.time_ms)
    assert modelled == pytest.approx(bus, rel=tolerance)


def test_every_network_figure_of_the_file_counts() -> None:
    """A hardware file that changes any number changes some price: nothing is a default."""
    base = network_profile("mi355x")
    factors = achievable(MI355X)
    shapes = [group(8), group(4), group(64, 8), group(128, 16, 2), Group(2, 1, 2, 1)]

    def prices(network: Network) -> list[float]:
        return [
            way.time_ms
            for kind in KINDS
            for shape in shapes
            for size in (1e3, 1e9)
            for way in candidates(kind, size, shape, network, factors)
        ]

    reference = prices(base)
    changes = {name: getattr(base, name) * 2 for name in SLOWER} | {
        "node_size": 4,
        "nics_per_node": 4,
        "node_topology": "switch",
    }
    for name, value in changes.items():
        assert prices(base.model_copy(update={name: value})) != reference, name
