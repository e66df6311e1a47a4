"""All-gather and reduce-scatter: the same traffic in opposite directions.

`num_bytes` is the whole vector: what every rank holds after the all-gather, or before the
reduce-scatter. Each rank sends (n - 1)/n of it at least (Thakur et al., 2005).
"""

from dataclasses import replace
from math import ceil, log2

from projection.collectives.links import Links
from projection.collectives.protocols import Cost


def allgather(num_bytes: float, group: Links) -> list[Cost]:
    """Ring, one direct exchange, recursive doubling, and nodes first."""
    costs = [ring(num_bytes, group), direct(num_bytes, group), _bruck(num_bytes, group)]
    if group.num_nodes > 1 and group.most > 1:
        costs.append(hierarchical(num_bytes, group))
    return costs


def reduce_scatter(num_bytes: float, group: Links) -> list[Cost]:
    """As all-gather, and every rank adds what it receives for its own share."""
    # (n - 1)/n of the BF16 elements are added once each, wherever that happens.
    adds = num_bytes / 2 * (group.size - 1) / group.size
    reduce_us = adds / group.flops_per_us
    return [replace(cost, reduce_us=reduce_us) for cost in allgather(num_bytes, group)]


def ring(num_bytes: float, group: Links) -> Cost:
    """n - 1 steps around a ring, as many rings as ranks on the emptiest node, a NIC for each.

    So every NIC carries its share of the vector, and the node's fabric what does not leave it.
    """
    share = num_bytes * (group.size - 1) / group.size
    if group.num_nodes == 1:
        return Cost("ring", share / group.node, node_steps=group.size - 1)
    inside = group.inside_us(share)
    outside = share / group.fewest / group.inter
    pods = group.num_pods - 1
    return Cost(
        "ring",
        max(inside, outside),
        node_steps=group.size - group.num_nodes,
        pod_steps=group.num_nodes - 1 - pods,
        cluster_steps=pods,
        pipelined_ring=True,
    )


def direct(num_bytes: float, group: Links) -> Cost:
    """Every rank sends its part to every other: one step inside a node, a round per remote peer."""
    part = num_bytes / group.size
    inside = part * (group.most - 1) / group.node
    if group.num_nodes == 1:
        return Cost("direct", inside, node_steps=1)
    remote = group.size - group.fewest
    outside = part * remote / group.inter
    near, far = _rounds(group, remote)
    return Cost("direct", max(inside, outside), 1, near, far)


def _bruck(num_bytes: float, group: Links) -> Cost:
    """Doubling what is held each step: log n steps, pairwise (Bruck et al., 1997)."""
    node_steps = ceil(log2(group.most))
    inter_steps = ceil(log2(group.num_nodes))
    part = num_bytes / group.size
    # Across nodes first, while the parts are small; then between the ranks of a node.
    outside = part * (group.node_shares - 1) / group.inter
    inside = part * (group.size / group.most) * (group.most - 1) / group.node_peer
    near, far = _doublings(group, inter_steps)
    return Cost("bruck", outside + inside, node_steps, near, far)


def hierarchical(num_bytes: float, group: Links) -> Cost:
    """Among ranks of equal place on their nodes, then inside each node."""
    part = num_bytes / group.fewest
    outside = part * (group.node_shares - 1) / group.node_shares / group.inter
    inside = group.inside_us(num_bytes)
    near, far = _doublings(group, ceil(log2(group.num_nodes)))
    return Cost("hierarchical", outside + inside, 1, near, far)


def _rounds(group: Links, rounds: float) -> tuple[float, float]:
    """Rounds with remote peers: those of the same pod, and the others."""
    far = rounds * (group.num_pods - 1) / group.num_pods
    return rounds - far, far


def _doublings(group: Links, steps: int) -> tuple[float, float]:
    """Doubling steps between nodes: inside a pod, and the ones it takes to span the pods."""
    far = min(steps, ceil(log2(group.num_pods)))
    return steps - far, far
