"""A message from one rank to another: pipeline activations, ring-attention keys and values."""

from projection.collectives.links import Links
from projection.collectives.protocols import Cost


def sendrecv(num_bytes: float, group: Links) -> list[Cost]:
    """One message over the widest domain `group` spans; its size is no matter.

    Inside a meshed node that is one link of the mesh, between nodes the rank's share of the NICs.
    A ring that has hops of both kinds takes as long as the slower.
    """
    if group.num_nodes == 1:
        return [Cost("direct", num_bytes / group.node_peer, node_steps=1)]
    rate = min(group.inter, group.node_peer) if group.most > 1 else group.inter
    if group.num_pods == 1:
        return [Cost("direct", num_bytes / rate, pod_steps=1)]
    return [Cost("direct", num_bytes / rate, cluster_steps=1)]
