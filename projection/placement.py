"""Which ranks form which group, and how many nodes and pods each group spans.

Ranks are numbered node by node and taken by the parallel dimensions in Megatron's order, innermost
first: tp, cp, dp, pp for attention and dense layers, and over the same GPUs etp, ep, edp, pp for
experts (parallel folding: Megatron-Core `RankGenerator`, "MoE Parallel Folding", 2025). Every group
is then a product of arithmetic progressions, so what it spans follows from strides; only groups
that cut nodes unevenly are enumerated.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import gcd, lcm
from typing import NamedTuple

from projection.operations import GroupName
from schemas.cluster import Cluster
from schemas.errors import UserError

Axes = tuple[tuple[int, int], ...]
"""(stride, size) of each dimension a group runs over, by rising stride."""


class Group(NamedTuple):
    """One group of ranks: the widest-spread of its name, which the others wait for.

    `ranks_per_node` is the most ranks it has on one node; nodes and pods are those it touches.
    """

    size: int
    ranks_per_node: int
    num_nodes: int
    num_pods: int
    fewest_per_node: int | None = None
    """Fewest ranks that any group of the name has on a node it touches; None: every node has
    `ranks_per_node`."""
    fewest_per_pod: int | None = None
    """The same of pods; None: every pod has an equal part."""


SINGLE = Group(size=1, ranks_per_node=1, num_nodes=1, num_pods=1)


class Placement:
    """The groups of one parallel configuration on one cluster.

    Raises UserError when the sizes do not tile the cluster, or when pipeline ranks come before
    data-parallel ones and experts have another data-parallel size than the rest (Megatron cannot
    build consistent pipeline groups then).
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        tp: int,
        cp: int,
        pp: int,
        dp: int,
        ep: int,
        etp: int,
        edp: int,
    ) -> None:
        world = cluster.world_size
        if tp * cp * dp * pp != world or etp * ep * edp * pp != world:
            raise UserError(
                f"tp {tp} x cp {cp} x dp {dp} x pp {pp} and etp {etp} x ep {ep} x edp {edp} x "
                f"pp {pp} must both be the {world} GPUs of cluster {cluster.name!r}"
            )
        pp_inner = cluster.placement == "tp-cp-ep-pp-dp"
        if pp_inner and pp > 1 and edp != dp:
            raise UserError(
                f"placement {cluster.placement} needs edp = dp, not edp {edp} and dp {dp}",
                hint="use placement tp-cp-ep-dp-pp, or ep x etp = tp x cp",
            )
        self.node_size = node_domain_size(cluster)
        self.pod_size = whole_nodes(cluster.network.pod_size, self.node_size)
        self._world = world
        self._pp = pp
        replica = tp * cp
        experts = etp * ep
        self._pp_stride = replica if pp_inner else replica * dp
        dp_stride = replica * pp if pp_inner else replica
        edp_stride = experts * pp if pp_inner else experts
        self._axes: dict[GroupName, Axes] = {
            "tp": ((1, tp),),
            "cp": ((tp, cp),),
            "dp": ((tp, cp), (dp_stride, dp)),
            "pp": ((self._pp_stride, pp),),
            "etp": ((1, etp),),
            "ep": ((etp, ep),),
            "edp": ((edp_stride, edp),),
        }

    def group(self, name: GroupName) -> Group:
        """The group called `name`.

        "dp" is the group that reduces dense gradients and shards their optimizer state: every
        rank with the same weights, so data-parallel times context-parallel.
        """
        return _span(self._axes[name], self._world, self.node_size, self.pod_size)

    def ranks(self, name: GroupName) -> list[tuple[int, ...]]:
        """All groups called `name` as lists of global ranks; together they partition the world."""
        return _rank_lists(self._axes[name], self._world)

    def p2p_group(self, stage_from: int, stage_to: int) -> Group:
        """The pair that exchanges activations between two pipeline ranks, at its most distant."""
        if stage_from == stage_to:
            return SINGLE
        return _pair(
            min(stage_from, stage_to),
            max(stage_from, stage_to),
            self._pp_stride,
            self._pp,
            self._world,
            self.node_size,
            self.pod_size,
        )


def node_domain_size(cluster: Cluster) -> int:
    """GPUs that reach each other over the node's fabric, in ranks of this cluster.

    A switched fabric may span boxes (GB200 NVL72: 72 GPUs in boxes of 4), so the network's
    `node_size` counts; a mesh cannot leave its box, so no more than `gpus_per_node`. A job that
    fills no whole number of such fabrics takes equal parts of as few as hold it (512 GPUs: 64 of
    each of eight racks, not seven racks and 8 GPUs of another, whose NICs all would wait for).
    """
    size, box = cluster.network.node_size, cluster.gpus_per_node
    if cluster.network.node_topology == "mesh":
        return min(size, box)
    if size <= box or size % box:
        return size
    fabrics = -(-cluster.world_size // size)
    return -(-cluster.num_nodes // fabrics) * box


def whole_nodes(pod_size: int, node_size: int) -> int:
    """GPUs of a pod: as many whole nodes as `pod_size` holds, at least one. No pod cuts a node."""
    return max(1, pod_size // node_size) * node_size


def consecutive(size: int, node_size: int, pod_size: int, stride: int = 1) -> Group:
    """Ranks 0, stride, 2 · stride, … of nodes and pods of so many GPUs, `size` of them."""
    return _span(((stride, size),), size * stride, node_size, whole_nodes(pod_size, node_size))


@lru_cache(maxsize=65536)
def _span(axes: Axes, world: int, node_size: int, pod_size: int) -> Group:
    """The widest-spread group that runs over `axes`."""
    size = 1
    for _, length in axes:
        size *= length
    if size == 1:
        return SINGLE
    per_node = _members_per_domain(axes, node_size)
    per_pod = _members_per_domain(axes, pod_size)
    if per_node is not None and per_pod is not None:
        return Group(size, per_node, size // per_node, size // per_pod)
    spans = [
        _counts(ranks, node_size, pod_size)
        for ranks in _distinct_groups(axes, world, lcm(node_size, pod_size))
    ]
    num_pods, num_nodes, most = max((pods, nodes, -most) for pods, nodes, most, _, _ in spans)
    few_on_node = min(span[3] for span in spans)
    few_in_pod = min(span[4] for span in spans)
    return Group(
        size,
        -most,
        num_nodes,
        num_pods,
        few_on_node if few_on_node * num_nodes != size else None,
        few_in_pod if few_in_pod * num_pods != size else None,
    )


def _members_per_domain(axes: Axes, domain_size: int) -> int | None:
    """Members each domain holds, when every domain holds the same; None when some are cut."""
    members = 1
    for stride, length in axes:
        if length == 1 or stride % domain_size == 0:
            continue
        if domain_size % stride:
            return None
        fitting = domain_size // stride
        if length % fitting and fitting % length:
            return None
        members *= min(length, fitting)
    return members


def _counts(ranks: Sequence[int], node_size: int, pod_size: int) -> tuple[int, int, int, int, int]:
    """Pods, nodes, the most and the fewest ranks on one of these nodes, the fewest in a pod."""
    nodes = Counter(rank // node_size for rank in ranks).values()
    pods = Counter(rank // pod_size for rank in ranks).values()
    return len(pods), len(nodes), max(nodes), min(nodes), min(pods)


def _distinct_groups(axes: Axes, world: int, period: int) -> Iterator[tuple[int, ...]]:
    """A group over `axes` for each way that groups lie in domains, which repeat every `period`."""
    members = _offsets(axes)
    seen: set[int] = set()
    for base in _bases(axes, world):
        if base % period not in seen:
            seen.add(base % period)
            yield tuple(base + member for member in members)


def _rank_lists(axes: Axes, world: int) -> list[tuple[int, ...]]:
    """Every group over `axes`: offsets 0 of its own dimensions, all of the others."""
    members = _offsets(axes)
    return [tuple(base + m for m in members) for base in _bases(axes, world)]


def _offsets(axes: Axes) -> list[int]:
    """Ranks of a group less its first one."""
    offsets = [0]
    for stride, length in axes:
        offsets = [offset + i * stride for i in range(length) for offset in offsets]
    return sorted(offsets)


def _bases(axes: Axes, world: int) -> Iterator[int]:
    """The first rank of each group over `axes`, ascending."""

    def bases(outer: Axes, within: int) -> Iterator[int]:
        """First ranks below `within`, which the last of `outer` divides into whole periods."""
        if not outer:
            yield from range(within)
            return
        stride, length = outer[-1]
        for start in range(0, within, stride * length):
            yield from (start + base for base in bases(outer[:-1], stride))

    return bases(tuple(axis for axis in axes if axis[1] > 1), world)


@lru_cache(maxsize=65536)
def _pair(
    low: int, high: int, stride: int, pp: int, world: int, node_size: int, pod_size: int
) -> Group:
    """The most distant pair of ranks that are pipeline ranks `low` and `high` of one pipeline."""

    def crosses(domain: int) -> bool:
        """Whether some rank of stage `low` has its partner of stage `high` in another domain."""
        distance = (high - low) * stride
        pipelines = range(low * stride, world, stride * pp)
        # Where a pipeline's stage begins in its domain repeats after this many pipelines.
        repeat = domain // gcd(domain, stride * pp)
        return any(first % domain + stride - 1 + distance >= domain for first in pipelines[:repeat])

    if crosses(pod_size):
        return Group(2, 1, 2, 2)
    nodes = 2 if crosses(node_size) else 1
    return Group(2, 3 - nodes, nodes, 1)
