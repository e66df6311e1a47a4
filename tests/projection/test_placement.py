import time
from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projection.operations import GroupName
from projection.placement import SINGLE, Group, Placement, consecutive
from projection.profiles import gpu_profile, network_profile
from schemas.cluster import Cluster
from schemas.errors import UserError

NAMES: tuple[GroupName, ...] = ("tp", "cp", "dp", "pp", "etp", "ep", "edp")


def domain_of(placement: Placement, stage_from: int, stage_to: int) -> str:
    """The widest domain that activations between two pipeline ranks cross."""
    group = placement.p2p_group(stage_from, stage_to)
    return "cluster" if group.num_pods > 1 else "pod" if group.num_nodes > 1 else "node"


def cluster(
    nodes: int, per_node: int = 8, order: str = "tp-cp-ep-dp-pp", **network: object
) -> Cluster:
    links = network_profile("mi300x").model_copy(update=network)
    return Cluster(
        name="test",
        num_nodes=nodes,
        gpus_per_node=per_node,
        gpu=gpu_profile("mi300x"),
        network=links,
        hbm_capacity_gb=192,
        memory_safety_margin=0.1,
        placement=order,  # type: ignore[arg-type]
    )


def coordinates(sizes: list[tuple[str, int]], world: int) -> list[dict[str, int]]:
    """Coordinates of every rank, the first dimension running fastest."""
    result = []
    for rank in range(world):
        coordinate, rest = {}, rank
        for name, size in sizes:
            coordinate[name] = rest % size
            rest //= size
        result.append(coordinate)
    return result


def groups_by_hand(
    sizes: list[tuple[str, int]], within: set[str], world: int
) -> set[tuple[int, ...]]:
    """Ranks that differ only in `within`, from Megatron's rule and nothing else."""
    members: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for rank, coordinate in enumerate(coordinates(sizes, world)):
        key = tuple((k, v) for k, v in coordinate.items() if k not in within)
        members.setdefault(key, []).append(rank)
    return {tuple(ranks) for ranks in members.values()}


def widest(groups: set[tuple[int, ...]], node: int, pod: int) -> tuple[int, int, int]:
    """(pods, nodes, minus the most ranks on a node) of the most spread group."""

    def spread(ranks: tuple[int, ...]) -> tuple[int, int, int]:
        nodes = [rank // node for rank in ranks]
        return (
            len({rank // pod for rank in ranks}),
            len(set(nodes)),
            -max(nodes.count(n) for n in nodes),
        )

    return max(spread(ranks) for ranks in groups)


def fewest(groups: set[tuple[int, ...]], domain: int) -> int:
    """Fewest ranks that any of the groups has in a domain it touches."""
    return min(min(Counter(rank // domain for rank in ranks).values()) for ranks in groups)


SIZES = st.sampled_from([1, 2, 3, 4, 6])


@given(
    tp=SIZES,
    cp=SIZES,
    dp=SIZES,
    pp=SIZES,
    etp=SIZES,
    node=st.sampled_from([2, 4, 6, 8]),
    pod_nodes=st.sampled_from([1, 2, 3, 8]),
    order=st.sampled_from(["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"]),
    data=st.data(),
)
@settings(max_examples=150, deadline=None)
def test_groups_are_those_of_the_rank_lists(
    tp: int,
    cp: int,
    dp: int,
    pp: int,
    etp: int,
    node: int,
    pod_nodes: int,
    order: str,
    data: st.DataObject,
) -> None:
    replica = tp * cp * dp
    divisors = [d for d in range(1, replica + 1) if replica % (d * etp) == 0]
    if not divisors:
        return
    ep = data.draw(st.sampled_from(divisors))
    edp = replica // (etp * ep)
    world = replica * pp
    pp_inner = order == "tp-cp-ep-pp-dp"
    if pp_inner and pp > 1 and edp != dp:
        return
    machine = cluster(
        world, 1, order, node_size=node, pod_size=node * pod_nodes, node_topology="switch"
    )
    placement = Placement(machine, tp=tp, cp=cp, pp=pp, dp=dp, ep=ep, etp=etp, edp=edp)
    node, pod = placement.node_size, placement.pod_size
    outer = [("pp", pp), ("dp", dp)] if pp_inner else [("dp", dp), ("pp", pp)]
    outer_experts = [("pp", pp), ("edp", edp)] if pp_inner else [("edp", edp), ("pp", pp)]
    dense = [("tp", tp), ("cp", cp), *outer]
    experts = [("etp", etp), ("ep", ep), *outer_experts]
    for name in NAMES:
        sizes = experts if name in ("etp", "ep", "edp") else dense
        expected = groups_by_hand(sizes, {"dp", "cp"} if name == "dp" else {name}, world)
        assert {tuple(ranks) for ranks in placement.ranks(name)} == expected
        pods, nodes, most = widest(expected, node, pod)
        size = len(next(iter(expected)))
        group = placement.group(name)
        assert group[:4] == (size, -most, nodes, pods)
        on_node, in_pod = fewest(expected, node), fewest(expected, pod)
        assert group.fewest_per_node == (None if on_node * nodes == size else on_node)
        assert group.fewest_per_pod == (None if in_pod * pods == size else in_pod)


@given(
    replica=st.sampled_from([1, 2, 3, 4, 8, 12, 16]),
    dp=st.sampled_from([1, 2, 4]),
    pp=st.sampled_from([2, 3, 4, 8]),
    node=st.sampled_from([2, 4, 6, 8]),
)
@settings(max_examples=150, deadline=None)
def test_pipeline_edges_cross_what_their_ranks_cross(
    replica: int, dp: int, pp: int, node: int
) -> None:
    world = replica * dp * pp
    machine = cluster(world, 1, node_size=node, pod_size=2 * node, node_topology="switch")
    placement = Placement(machine, tp=replica, cp=1, pp=pp, dp=dp, ep=1, etp=1, edp=replica * dp)
    node, pod = placement.node_size, placement.pod_size
    for low, high in product(range(pp), repeat=2):
        pairs = [
            (base + low * replica * dp, base + high * replica * dp) for base in range(replica * dp)
        ]
        expected = "node"
        if any(a // node != b // node for a, b in pairs):
            expected = "pod"
        if any(a // pod != b // pod for a, b in pairs):
            expected = "cluster"
        assert domain_of(placement, low, high) == expected


def test_expert_groups_fold_over_the_attention_groups() -> None:
    """TP 4 x DP 4 on two nodes with EP 8, ETP 1: an expert group is one node, not two."""
    placement = Placement(cluster(2), tp=4, cp=1, pp=1, dp=4, ep=8, etp=1, edp=2)
    assert placement.ranks("ep")[0] == (0, 1, 2, 3, 4, 5, 6, 7)
    assert placement.group("ep") == Group(8, 8, 1, 1)
    assert placement.group("dp") == Group(4, 2, 2, 1)
    assert placement.group("edp") == Group(2, 1, 2, 1)


def test_data_parallel_group_counts_context_ranks_because_they_share_weights() -> None:
    placement = Placement(cluster(4), tp=2, cp=4, pp=2, dp=2, ep=1, etp=2, edp=8)
    assert placement.group("dp").size == 8
    assert placement.group("cp") == Group(4, 4, 1, 1)


def test_pipeline_inside_data_parallel_keeps_stages_on_a_node() -> None:
    inner = Placement(
        cluster(4, order="tp-cp-ep-pp-dp"), tp=1, cp=1, pp=8, dp=4, ep=1, etp=1, edp=4
    )
    assert domain_of(inner, 3, 4) == "node"
    assert domain_of(inner, 7, 0) == "node"
    outer = Placement(cluster(4), tp=1, cp=1, pp=8, dp=4, ep=1, etp=1, edp=4)
    assert [domain_of(outer, s, s + 1) for s in (0, 1)] == ["node", "pod"]


def test_wrap_around_of_a_long_pipeline_crosses_pods() -> None:
    placement = Placement(cluster(16), tp=8, cp=1, pp=16, dp=1, ep=1, etp=8, edp=1)
    assert domain_of(placement, 0, 1) == "pod"
    assert domain_of(placement, 15, 0) == "cluster"
    assert placement.p2p_group(15, 0).num_pods == 2


def test_no_pod_cuts_a_node() -> None:
    """Boxes of six in pods of 64 GPUs: ten whole boxes to a pod, so ranks 63 and 64 share one."""
    placement = Placement(cluster(12, 6), tp=1, cp=1, pp=72, dp=1, ep=1, etp=1, edp=1)
    assert placement.pod_size == 60
    assert [domain_of(placement, s, s + 1) for s in (62, 63, 65)] == ["node", "node", "pod"]
    assert domain_of(placement, 59, 60) == "cluster"


def test_consecutive_ranks_fill_node_after_node() -> None:
    assert consecutive(8, 8, 64) == Group(8, 8, 1, 1)
    assert consecutive(12, 8, 64) == Group(12, 8, 2, 1, fewest_per_node=4)
    assert consecutive(16, 8, 64, stride=4) == Group(16, 2, 8, 1)
    assert consecutive(2, 8, 64, stride=16) == Group(2, 1, 2, 1)


def test_rack_fabric_spans_boxes_and_a_mesh_does_not() -> None:
    rack = network_profile("gb200")
    boxes = cluster(18, 4).model_copy(update={"network": rack})
    assert Placement(boxes, tp=1, cp=1, pp=1, dp=72, ep=1, etp=1, edp=72).group("dp") == Group(
        72, 72, 1, 1
    )
    halves = Placement(cluster(4, 4), tp=8, cp=1, pp=1, dp=2, ep=1, etp=8, edp=2)
    assert halves.group("tp") == Group(8, 4, 2, 1)


@pytest.mark.parametrize(
    ("boxes", "size", "per_rack", "racks"),
    [(18, 72, 72, 1), (2, 8, 8, 1), (36, 144, 72, 2), (32, 128, 64, 2), (128, 512, 64, 8)],
)
def test_a_job_takes_equal_parts_of_the_racks_it_needs(
    boxes: int, size: int, per_rack: int, racks: int
) -> None:
    machine = cluster(boxes, 4).model_copy(update={"network": network_profile("gb200")})
    placement = Placement(machine, tp=1, cp=1, pp=1, dp=size, ep=1, etp=1, edp=size)
    assert placement.group("dp") == Group(size, per_rack, racks, 1)


def test_groups_of_one_are_single() -> None:
    placement = Placement(cluster(1), tp=1, cp=1, pp=1, dp=8, ep=1, etp=1, edp=8)
    assert placement.group("tp") == SINGLE
    assert placement.p2p_group(0, 0) == SINGLE


def test_sizes_that_do_not_tile_the_cluster_are_refused() -> None:
    with pytest.raises(UserError, match="must both be the 16 GPUs"):
        Placement(cluster(2), tp=3, cp=1, pp=1, dp=5, ep=1, etp=1, edp=16)


def test_inner_pipeline_with_other_expert_replicas_is_refused() -> None:
    with pytest.raises(UserError, match="needs edp = dp"):
        Placement(cluster(2, order="tp-cp-ep-pp-dp"), tp=1, cp=1, pp=2, dp=8, ep=8, etp=1, edp=1)


@pytest.mark.parametrize("order", ["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"])
def test_groups_of_a_hundred_thousand_gpus_are_counted_at_once(order: str) -> None:
    """Groups that cut nodes and pods unevenly are the costly ones; ten seconds is 100 times it."""
    machine = cluster(12_500, 8, order, node_size=8, pod_size=72)
    started = time.process_time()
    placement = Placement(machine, tp=5, cp=1, pp=4, dp=5000, ep=5, etp=1, edp=5000)
    whole = {name: placement.group(name) for name in NAMES}
    edges = {placement.p2p_group(stage, (stage + 1) % 4).num_pods for stage in range(4)}
    assert time.process_time() - started < 10
    assert whole["dp"].size == 5000
    assert whole["tp"].num_nodes == 2
    assert edges == {2}


def test_data_parallelism_over_a_hundred_thousand_gpus_is_counted_at_once() -> None:
    """One group of all GPUs, over pods that are no divisor of the cluster."""
    machine = cluster(12_500, 8, node_size=8, pod_size=72)
    started = time.process_time()
    placement = Placement(machine, tp=1, cp=1, pp=1, dp=100_000, ep=1, etp=1, edp=100_000)
    group = placement.group("dp")
    assert time.process_time() - started < 10
    assert group == Group(100_000, 8, 12_500, 1389, fewest_per_pod=64)
