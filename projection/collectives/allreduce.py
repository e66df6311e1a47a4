"""All-reduce of `num_bytes` on every rank: ring, hypercube, Bruck, single-shot, hierarchical,
in-switch, and a reduce-scatter followed by an all-gather.
"""

from dataclasses import replace
from math import ceil, log2

from projection.collectives import gather
from projection.collectives.links import Links
from projection.collectives.protocols import Cost


def allreduce(num_bytes: float, group: Links) -> list[Cost]:
    """Every algorithm that applies to `group`."""
    costs = [_ring(num_bytes, group), _bruck(num_bytes, group)]
    even = group.fewest == group.most
    if even and _is_power_of_two(group.size) and _is_power_of_two(group.num_nodes):
        costs.append(_hypercube(num_bytes, group))
    if group.num_nodes == 1:
        costs.append(_single_shot(num_bytes, group))
        if group.switch is not None:
            costs.append(_in_switch(num_bytes, group, group.switch))
    elif group.most > 1:
        costs.append(_hierarchical(num_bytes, group))
    costs.append(_scatter_gather(gather.direct(num_bytes, group), num_bytes, group))
    if group.num_nodes > 1 and group.most > 1:
        costs.append(_scatter_gather(gather.hierarchical(num_bytes, group), num_bytes, group))
    return costs


def _scatter_gather(once: Cost, num_bytes: float, group: Links) -> Cost:
    """A reduce-scatter and an all-gather of the same kind as `once`, in one launch."""
    return Cost(
        f"reduce_scatter+allgather {once.algorithm}",
        2 * once.wire_us,
        2 * once.node_steps,
        2 * once.pod_steps,
        2 * once.cluster_steps,
        _adds_us(num_bytes * (group.size - 1) / group.size, group),
        once.pipelined_ring,
    )


def _ring(num_bytes: float, group: Links) -> Cost:
    """Around the ring to reduce, around again to distribute (Patarasuk and Yuan, 2009)."""
    return replace(
        _scatter_gather(gather.ring(num_bytes, group), num_bytes, group), algorithm="ring"
    )


def _hypercube(num_bytes: float, group: Links) -> Cost:
    """Recursive halving, then doubling: 2 log n pairwise steps (Rabenseifner, 2004)."""
    inside = num_bytes * (1 - 1 / group.most) / group.node_peer
    per_nic = num_bytes / group.most
    outside = per_nic * (1 - 1 / group.num_nodes) / group.inter
    far = log2(group.num_pods) if _is_power_of_two(group.num_pods) else group.num_pods - 1
    return Cost(
        "hypercube",
        2 * (inside + outside),
        node_steps=2 * log2(group.most),
        pod_steps=2 * max(0.0, log2(group.num_nodes) - far),
        cluster_steps=2 * far,
        reduce_us=_adds_us(num_bytes * (group.size - 1) / group.size, group),
    )


def _bruck(num_bytes: float, group: Links) -> Cost:
    """The whole vector to a partner twice as far each step: log n steps, for short messages."""
    node_steps = ceil(log2(group.most))
    steps = ceil(log2(group.num_nodes))
    far = min(steps, ceil(log2(group.num_pods)))
    wire = node_steps * num_bytes / group.node_peer + steps * num_bytes / group.inter
    return Cost(
        "bruck",
        wire,
        node_steps=node_steps,
        pod_steps=steps - far,
        cluster_steps=far,
        reduce_us=_adds_us(num_bytes * (node_steps + steps), group),
    )


def _single_shot(num_bytes: float, group: Links) -> Cost:
    """Everyone reads everyone's vector and adds all of them: one step, n - 1 times the traffic."""
    others = group.size - 1
    return Cost(
        "single_shot",
        others * num_bytes / group.node,
        node_steps=1,
        reduce_us=_adds_us(num_bytes * others, group),
    )


def _in_switch(num_bytes: float, group: Links, to_switch: float) -> Cost:
    """The switch adds and multicasts (NVLink SHARP: `multimem.ld_reduce`, `multimem.st`).

    A rank sends its whole vector towards the ranks that own its parts, added on the way, and then
    multicasts the sum of its own part: (1 + 1/n) vectors out of each port.
    """
    return Cost("in_switch", num_bytes * (1 + 1 / group.size) / to_switch, node_steps=2)


def _hierarchical(num_bytes: float, group: Links) -> Cost:
    """Reduce-scatter in the node, all-reduce each share across nodes, all-gather in the node.

    The share crosses pods reduced by everything below: only its part of the pod's sum.
    """
    share = num_bytes / group.fewest
    inside = group.inside_us(2 * num_bytes)
    per_pod = group.num_nodes / group.num_pods
    pod_us = 2 * share * (per_pod - 1) / per_pod / group.pod
    pods = group.num_pods
    cluster_us = 2 * share / group.pod_shares * (pods - 1) / pods / group.cluster
    return Cost(
        "hierarchical",
        inside + pod_us + cluster_us,
        node_steps=2,
        pod_steps=2 * ceil(log2(per_pod)) if per_pod > 1 else 0,
        cluster_steps=2 * ceil(log2(pods)),
        reduce_us=_adds_us(num_bytes * (group.size - 1) / group.size, group),
    )


def _adds_us(num_bytes: float, group: Links) -> float:
    """Adding `num_bytes` of BF16 into an accumulator."""
    return num_bytes / 2 / group.flops_per_us


def _is_power_of_two(number: int) -> bool:
    return number & (number - 1) == 0
