"""What one rank of a group can send per microsecond, inside its node and out of it."""

from dataclasses import dataclass

from projection.placement import Group
from schemas.cluster import Network
from schemas.gpu import Achievable

BYTES_PER_US_PER_GB_PER_S = 1e3


@dataclass(frozen=True, slots=True)
class Links:
    """Derated rates of one rank, in bytes per microsecond, and the shape of its group.

    Nodes may hold unequal numbers of its ranks. What leaves a node is then carried by the NICs of
    the `fewest`, for which others wait: they have least to send with and most to receive.
    """

    size: int
    num_nodes: int
    num_pods: int
    most: int
    """Ranks on the fullest node."""
    fewest: int
    """Ranks on the emptiest node it touches."""
    fewest_in_pod: float
    node: float
    """To all peers on the fullest node at once."""
    node_fewest: float
    """The same on the emptiest."""
    node_peer: float
    """To one peer on the node: one link of a mesh, all of a switch port."""
    pod: float
    """Out of the node, to the same pod: the rank's share of the node's NICs."""
    cluster: float
    """Out of the pod, by the same NICs: no faster than inside it."""
    flops_per_us: float
    switch: float | None = None
    """To the node's switch, which adds up what it is sent; None: it cannot."""

    @property
    def node_shares(self) -> float:
        """Parts the vector has when nodes hold a part each, all as few ranks as the emptiest."""
        return self.size / self.fewest

    @property
    def pod_shares(self) -> float:
        """Parts of `node_shares` in the emptiest pod."""
        return min(self.fewest_in_pod / self.fewest, self.num_nodes / self.num_pods)

    @property
    def inter(self) -> float:
        """Out of the node, at the rate of the slowest domain the group crosses."""
        return self.cluster if self.num_pods > 1 else self.pod

    def inside_us(self, num_bytes: float) -> float:
        """Each rank of a node sends all but its own part of `num_bytes` there: the slowest node."""
        full = num_bytes * (self.most - 1) / self.most / self.node
        if self.fewest == self.most:
            return full
        return max(full, num_bytes * (self.fewest - 1) / self.fewest / self.node_fewest)


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
    most, fewest = group.ranks_per_node, group.fewest_per_node or group.ranks_per_node
    node = node_fewest = peer = derated
    if network.node_topology == "mesh" and network.node_size > 1:
        peer = derated / (network.node_size - 1)
        node = peer * max(1, min(most, network.node_size) - 1)
        node_fewest = peer * max(1, min(fewest, network.node_size) - 1)
    switch = None
    if network.node_topology == "switch" and achievable.switch_reduction is not None:
        switch = network.node_bw * achievable.switch_reduction * BYTES_PER_US_PER_GB_PER_S
    nics = network.nics_per_node / network.node_size
    if not network.switch_topology:
        nics = min(1.0, nics)
    pod = network.pod_bw * nics * achievable.pod_link * BYTES_PER_US_PER_GB_PER_S
    cluster = network.cluster_bw * nics * achievable.cluster_link * BYTES_PER_US_PER_GB_PER_S
    return Links(
        size=group.size,
        num_nodes=group.num_nodes,
        num_pods=group.num_pods,
        most=most,
        fewest=fewest,
        fewest_in_pod=group.fewest_per_pod or group.size / group.num_pods,
        node=node,
        node_fewest=node_fewest,
        node_peer=peer,
        pod=pod,
        cluster=min(pod, cluster),
        flops_per_us=network.vector_flops * 1e-6,
        switch=switch,
    )
