"""Collectives on one group of ranks: every algorithm in every protocol, and the fastest of them.

Follows Appendix B.3 of the Primus Projection paper (three domains, algorithms x protocols, minimum
time). Every figure comes from the network and derates handed in; nothing is assumed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

from projection.collectives.allreduce import allreduce
from projection.collectives.alltoall import alltoall, forwarded
from projection.collectives.gather import allgather, reduce_scatter
from projection.collectives.links import Links, links
from projection.collectives.p2p import sendrecv
from projection.collectives.protocols import Cost, framings, time_us
from projection.operations import CollectiveKind
from projection.placement import Group
from schemas.cluster import Network
from schemas.gpu import Achievable


@dataclass(frozen=True, slots=True)
class Priced:
    """One way to perform a collective, in milliseconds."""

    time_ms: float
    algorithm: str
    protocol: str


NOTHING: Final = Priced(0.0, "none", "none")
"""A group of one, or no bytes: no call is made."""

_ALGORITHMS: Final[dict[CollectiveKind, Callable[[float, Links], list[Cost]]]] = {
    "allreduce": allreduce,
    "allgather": allgather,
    "reduce_scatter": reduce_scatter,
    "alltoall": alltoall,
    "sendrecv": sendrecv,
}


class Collectives:
    """Prices of collectives on one network, and memory of the groups it has seen."""

    def __init__(self, network: Network, achievable: Achievable) -> None:
        self._network = network
        self._achievable = achievable
        self.framings = framings(network, achievable.collective_launch_us)
        self._links: dict[tuple[Group, bool], Links] = {}

    def candidates(self, kind: CollectiveKind, num_bytes: float, group: Group) -> list[Priced]:
        """All algorithms times all protocols that apply, fastest first.

        `num_bytes` is counted as `projection.operations.Collective` states. A group of size one
        and an empty message cost nothing.
        """
        costs = self._costs(kind, num_bytes, group)
        if not costs:
            return [NOTHING]
        priced = [
            Priced(time_us(cost, framing) * 1e-3, cost.algorithm, framing.name)
            for cost in costs
            for framing in self.framings
        ]
        return sorted(priced, key=lambda p: p.time_ms)

    def price(
        self,
        kind: CollectiveKind,
        num_bytes: float,
        group: Group,
        crossing_bytes: float | None = None,
    ) -> Priced:
        """The fastest of `candidates`.

        `crossing_bytes`: of an all-to-all that forwards tokens inside nodes, what of a rank's
        message leaves its node; forwarding is then one more way.
        """
        best_us, best = inf, NOTHING
        costs = self._costs(kind, num_bytes, group)
        if crossing_bytes is not None and costs and group.num_nodes > 1:
            costs = [*costs, forwarded(num_bytes, crossing_bytes, self._of(kind, group))]
        for cost in costs:
            for framing in self.framings:
                us = time_us(cost, framing)
                if us < best_us:
                    best_us, best = us, Priced(us * 1e-3, cost.algorithm, framing.name)
        return best

    def _costs(self, kind: CollectiveKind, num_bytes: float, group: Group) -> list[Cost]:
        if group.size == 1 or num_bytes <= 0:
            return []
        return _ALGORITHMS[kind](num_bytes, self._of(kind, group))

    def _of(self, kind: CollectiveKind, group: Group) -> Links:
        """The links of `group` as `kind` finds them."""
        gathers = kind in ("allgather", "reduce_scatter")
        known = self._links.get((group, gathers))
        if known is None:
            known = links(group, self._network, self._achievable, gathers=gathers)
            self._links[group, gathers] = known
        return known


def candidates(
    kind: CollectiveKind,
    num_bytes: float,
    group: Group,
    network: Network,
    achievable: Achievable,
) -> list[Priced]:
    """All ways to perform one collective, fastest first (see `Collectives.candidates`)."""
    return Collectives(network, achievable).candidates(kind, num_bytes, group)


def price(
    kind: CollectiveKind,
    num_bytes: float,
    group: Group,
    network: Network,
    achievable: Achievable,
) -> Priced:
    """The fastest way to perform one collective."""
    return Collectives(network, achievable).price(kind, num_bytes, group)


__all__ = ["NOTHING", "Collectives", "Priced", "candidates", "price"]
