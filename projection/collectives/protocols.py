"""How a message is framed on the wire: Simple, LL, LL64, LL128; and what an algorithm costs in it.

An algorithm states its steps per domain and its time on the wire at full efficiency (`Cost`). A
protocol adds its handshake to every step and its flags to every byte. Handshakes are NCCL's own
tuning constants (src/graph/tuning.cc, ring: LL 0.6 / 2.7 us, LL128 1.9 / 4.0, Simple 3.4 / 14 per
step over NVLink / network; base LL 6.6, LL128 14, Simple 8.4), less the wire latency that the
hardware file states (0.47 and 2.7 there). RCCL's table has 2.7 us for Simple inside a node.
"""

from dataclasses import dataclass
from typing import Final

from schemas.cluster import Network


@dataclass(frozen=True, slots=True)
class Protocol:
    """Framing: fraction of wire bytes that are data, and microseconds beyond the wire."""

    name: str
    efficiency: float
    base_us: float
    node_step_us: float
    inter_step_us: float


PROTOCOLS: Final = (
    Protocol("simple", 1.0, 1.8, 2.9, 11.3),
    Protocol("ll", 4 / 8, 0.0, 0.1, 0.0),
    Protocol("ll64", 56 / 64, 7.4, 1.4, 1.3),
    Protocol("ll128", 120 / 128, 7.4, 1.4, 1.3),
)
"""LL flags every 4 bytes with 4, LL64 and LL128 one 8-byte word of 64 and 128."""

RING_PLATEAU: Final = 1.9
"""NCCL's factor on the latency of a Simple ring that spans nodes ("plateau effect of ring", same
file): its steps move whole slices through a proxy. It puts the 2-node all-reduces that rccl-tests
reports for MI355X between 64 MB and 256 MB (270 to 290 us beyond bandwidth) within 15 %."""


@dataclass(frozen=True, slots=True)
class Cost:
    """One algorithm on one group. Steps are counted along the critical path."""

    algorithm: str
    wire_us: float
    node_steps: float = 0
    pod_steps: float = 0
    cluster_steps: float = 0
    reduce_us: float = 0
    pipelined_ring: bool = False
    """A ring across nodes, whose Simple steps stretch (see `RING_PLATEAU`)."""


@dataclass(frozen=True, slots=True)
class Framing:
    """A protocol on one network: microseconds of a launch and of a step in each domain."""

    name: str
    expansion: float
    """Wire bytes per byte of data."""
    start_us: float
    node_us: float
    pod_us: float
    cluster_us: float
    ring_plateau: float


def framings(network: Network, launch_us: float) -> tuple[Framing, ...]:
    """Every protocol with the latencies of `network` and the launch of a collective."""
    return tuple(
        Framing(
            name=p.name,
            expansion=1 / p.efficiency,
            start_us=launch_us + p.base_us,
            node_us=network.node_lat + p.node_step_us,
            pod_us=network.pod_lat + p.inter_step_us,
            cluster_us=network.cluster_lat + p.inter_step_us,
            ring_plateau=RING_PLATEAU if p.name == "simple" else 1.0,
        )
        for p in PROTOCOLS
    )


def time_us(cost: Cost, framing: Framing) -> float:
    """Microseconds of `cost` in one protocol, its launch included."""
    handshakes = (
        cost.node_steps * framing.node_us
        + cost.pod_steps * framing.pod_us
        + cost.cluster_steps * framing.cluster_us
    )
    if cost.pipelined_ring:
        handshakes *= framing.ring_plateau
    return framing.start_us + handshakes + cost.wire_us * framing.expansion + cost.reduce_us
