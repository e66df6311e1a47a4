"""All-to-all: each rank holds `num_bytes`, an equal part of them for every rank, itself included.

Nothing is reduced on the way, so what leaves one of m nodes is (m - 1)/m of everything its ranks
hold, whoever carries it (more where it holds fewer ranks than others);
algorithms differ in how many messages that takes and whether fabric and NICs work at once.
"""

from projection.collectives.links import Links
from projection.collectives.protocols import Cost


def alltoall(num_bytes: float, group: Links) -> list[Cost]:
    """Single-shot and direct inside a node; direct, hierarchical and PXN across nodes."""
    if group.num_nodes == 1:
        return [_single_shot(num_bytes, group), _direct(num_bytes, group)]
    costs = [_direct(num_bytes, group)]
    if group.most > 1:
        costs += [_hierarchical(num_bytes, group), _pxn(num_bytes, group)]
    return costs


def _single_shot(num_bytes: float, group: Links) -> Cost:
    """All parts posted at once into the peers' memory."""
    sent = num_bytes * (group.size - 1) / group.size
    return Cost("single_shot", sent / group.node, node_steps=1)


def _direct(num_bytes: float, group: Links) -> Cost:
    """A part to each peer in turn; parts for the node and for the network travel side by side."""
    part = num_bytes / group.size
    inside = part * (group.most - 1) / group.node
    if group.num_nodes == 1:
        return Cost("direct", inside, node_steps=group.size - 1)
    remote = group.size - group.fewest
    far_share = _far_share(group)
    return Cost(
        "direct",
        max(inside, _outside_us(part * remote, group)),
        node_steps=group.most - 1,
        pod_steps=remote * (1 - far_share),
        cluster_steps=remote * far_share,
    )


def _hierarchical(num_bytes: float, group: Links) -> Cost:
    """Sort by destination rail inside the node, then one message per remote node."""
    inside = group.inside_us(num_bytes)
    outside = _outside_us(num_bytes * (group.node_shares - 1) / group.node_shares, group)
    return _per_node(group, "hierarchical", inside + outside)


def _pxn(num_bytes: float, group: Links) -> Cost:
    """As hierarchical, the fabric forwarding while the NIC sends (NCCL PXN, DeepEP)."""
    inside = group.inside_us(num_bytes)
    outside = _outside_us(num_bytes * (group.node_shares - 1) / group.node_shares, group)
    return _per_node(group, "pxn", max(inside, outside))


def forwarded(num_bytes: float, crossing_bytes: float, group: Links) -> Cost:
    """As PXN, a token crossing to a node once for all of its ranks there (DeepEP).

    `crossing_bytes` of a rank's `num_bytes` leave its node; their copies are made by the receiver,
    so the node's fabric carries as much as ever.
    """
    inside = group.inside_us(num_bytes)
    return _per_node(group, "forwarded", max(inside, _outside_us(crossing_bytes, group)))


def _per_node(group: Links, algorithm: str, wire_us: float) -> Cost:
    """Rounds of an exchange with one message per remote node, and a step inside the node."""
    rounds = group.num_nodes - 1
    far = rounds * _far_share(group)
    return Cost(algorithm, wire_us, node_steps=1, pod_steps=rounds - far, cluster_steps=far)


def _outside_us(num_bytes: float, group: Links) -> float:
    """Time for `num_bytes` out of a rank, of which a part goes to other pods."""
    far = num_bytes * _far_share(group)
    return (num_bytes - far) / group.pod + far / group.cluster


def _far_share(group: Links) -> float:
    """Of what leaves the node, the part that leaves the pod."""
    if group.num_pods == 1:
        return 0.0
    return (group.node_shares - group.pod_shares) / (group.node_shares - 1)
