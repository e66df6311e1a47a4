"""What one rank of a group can send per microsecond, inside its node and out of it."""

from dataclasses import dataclass

from projection.placement import Group
from schemas.cluster import Network
from schemas.gpu import Achievable

BYTES_PER_US_PER_GB_PER_S = 1e3


@dataclass(frozen=True, slots=True)
class Links:
    """Derated rates of one rank, in bytes per microsecond, and the shape of its group.

    `spread` is the average number of ranks on each node the group touches.
    """

    size: int
    ranks_per_node: int
    num_nodes: int
    num_pods: int
    spread: float
    node: float
    """To all peers on the node at once."""
    node_peer: float
    """To one peer on the node: one link of a mesh, all of a switch port."""
    pod: float
    """Out of the node, to the same pod: the rank's share of the node's NICs."""
    cluster: float
    """Out of the pod."""
    flops_per_us: float
    switch: float | None = None
    """To the node's switch, which adds up what it is sent; None: it cannot."""

    @property
    def inter(self) -> float:
        """Out of the node, at the rate of the slowest domain the group crosses."""
        return min(self.pod, self.cluster) if self.num_pods > 1 else self.pod


def links(
    group: Group, network: Network, achievable: Achievable, *, gathers: bool = False
) -> Links:
    """The links of `group`, every figure from the network given.

    `gathers`: as all-gather and reduce-scatter find them, which reach another share of the fabric.

    On a full mesh of N GPUs a group of g uses g - 1 of each GPU's N - 1 links, so (g - 1)/(N - 1)
    of its egress. The ranks of a node share its NICs, for their siblings' groups send at the same
    time; without an inter-node switch a rank reaches no other NIC than its own.
    """
    inside = (achievable.gather_link if gathers else None) or achievable.node_link
    derated = network.node_bw * inside * BYTES_PER_US_PER_GB_PER_S
    node = peer = derated
    if network.node_topology == "mesh" and network.node_size > 1:
        peer = derated / (network.node_size - 1)
        node = peer * max(1, min(group.ranks_per_node, network.node_size) - 1)
    switch = None
    if network.node_topology == "switch" and achievable.switch_reduction is not None:
        switch = network.node_bw * achievable.switch_reduction * BYTES_PER_US_PER_GB_PER_S
    nics = network.nics_per_node / network.node_size
    if not network.switch_topology:
        nics = min(1.0, nics)
    return Links(
        size=group.size,
        ranks_per_node=group.ranks_per_node,
        num_nodes=group.num_nodes,
        num_pods=group.num_pods,
        spread=group.size / group.num_nodes,
        node=node,
        node_peer=peer,
        pod=network.pod_bw * nics * achievable.pod_link * BYTES_PER_US_PER_GB_PER_S,
        cluster=network.cluster_bw * nics * achievable.cluster_link * BYTES_PER_US_PER_GB_PER_S,
        flops_per_us=network.vector_flops * 1e-6,
        switch=switch,
    )
