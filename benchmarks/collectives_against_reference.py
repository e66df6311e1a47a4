"""Compares our collective prices with a table of another model's, and checks why they part.

Run as `python -m benchmarks.collectives_against_reference TABLE.jsonl` from the repository root.
Each line of TABLE holds hw (mi300x, mi355x; others are left out), nodes, gpus, hp (ranks on one
node that are skipped between members: 1 for consecutive ranks), op, bytes and us. Prices more than
25 % apart are counted per class as they are, and again with the reference's assumptions put into
our model one after the other (`Cause`), so that each reason is a computation and not a reading.
"""

import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import ceil, log2
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

from projection.collectives import Collectives
from projection.collectives.allreduce import allreduce
from projection.collectives.alltoall import alltoall
from projection.collectives.gather import allgather, reduce_scatter
from projection.collectives.links import links
from projection.collectives.protocols import PROTOCOLS, Framing, time_us
from projection.placement import Group
from projection.profiles import achievable, gpu_profile, network_profile
from schemas.cluster import Network

WIDE = 0.25
SMALL, LARGE = 2**23, 2**26
ALGORITHMS = {
    "allreduce": allreduce,
    "allgather": allgather,
    "reduce_scatter": reduce_scatter,
    "alltoall": alltoall,
}

Cause = Literal["fixed times", "whole egress", "link shares"]
CAUSES: tuple[Cause, ...] = ("fixed times", "whole egress", "link shares")
"""Fixed times: a launch of 2.8 us, 0.37 us a step (0.74 in the simple protocol), and what it adds
per call (`added_us`). Whole egress: part of a mesh sends at the whole node's rate, except in an
all-to-all. Link shares: 0.70 of every link; in an all-to-all 0.80 of a NIC less 4 % for each
further node, and up to 12 % less of a mesh."""
LAUNCH_US, STEP_US, SIMPLE_STEP_US = 2.8, 0.37, 0.74


class Row(NamedTuple):
    """One price of the reference."""

    hw: str
    op: str
    group: Group
    num_bytes: float
    us: float

    @property
    def label(self) -> tuple[str, str, str]:
        """Its class."""
        where = "inside a node" if self.group.num_nodes == 1 else "across nodes"
        return self.op, where, size_class(self.num_bytes)


def size_class(num_bytes: float) -> str:
    """Where latency, both or bandwidth decide."""
    if num_bytes <= SMALL:
        return "to 8 MiB"
    return "64 MiB" if num_bytes <= LARGE else "from 256 MiB"


def rows_of(path: Path) -> list[Row]:
    """Distinct prices of consecutive ranks; strided groups are left out."""
    found: dict[tuple[str, str, int, int], Row] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        entry: dict[str, Any] = json.loads(line)
        if entry["hw"] not in ("mi300x", "mi355x") or entry["hp"] != 1:
            continue
        size, node = entry["gpus"], network_profile(entry["hw"]).node_size
        per_node = min(size, node)
        group = Group(size, per_node, size // per_node, 1)
        key = (entry["hw"], entry["op"], size, entry["bytes"])
        found.setdefault(key, Row(entry["hw"], entry["op"], group, entry["bytes"], entry["us"]))
    return list(found.values())


def price_us(row: Row, causes: Sequence[Cause]) -> float:
    """Our price of `row` under the reference's assumptions `causes`."""
    network, factors = network_profile(row.hw), achievable(gpu_profile(row.hw))
    if not causes:
        models = Collectives(network, factors)
        return models.price(row.op, row.num_bytes, row.group).time_ms * 1e3  # type: ignore[arg-type]
    exchange = row.op == "alltoall"
    if "link shares" in causes:
        nodes = row.group.num_nodes
        nic = 0.80 * (1 - 0.04 * (nodes - 1)) if exchange else 0.70
        fabric = 0.70
        if exchange:
            used = (min(row.group.size, network.node_size) - 1) / (network.node_size - 1)
            fabric *= 1 - 0.12 * used**2
        update = {"node_link": fabric, "gather_link": None, "pod_link": nic, "cluster_link": nic}
        factors = factors.model_copy(update=update)
    known = links(row.group, network, factors, gathers=row.op in ("allgather", "reduce_scatter"))
    if "whole egress" in causes and not exchange:
        known = replace(known, node=known.node_peer * (network.node_size - 1))
    framings = reference_framings(network)
    added = added_us(row, network)
    if "fixed times" not in causes:
        models = Collectives(network, factors)
        framings, added = models.framings, 0.0
    costs = ALGORITHMS[row.op](row.num_bytes, known)
    return added + min(time_us(cost, framing) for cost in costs for framing in framings)


def reference_framings(network: Network) -> tuple[Framing, ...]:
    """The protocols with the reference's latencies."""
    return tuple(
        Framing(
            name=p.name,
            expansion=1 / p.efficiency,
            start_us=LAUNCH_US,
            node_us=SIMPLE_STEP_US if p.name == "simple" else STEP_US,
            pod_us=network.pod_lat,
            cluster_us=network.cluster_lat,
            ring_plateau=1.0,
        )
        for p in PROTOCOLS
    )


def added_us(row: Row, network: Network) -> float:
    """What the reference adds to a call, whatever its algorithm."""
    size, nodes = row.group.size, row.group.num_nodes
    if row.op == "alltoall":
        peers = min(size, network.node_size) - 1
        return 150 + 50 + 2.5 * peers + 0.45 * max(0, size - network.node_size)
    if row.op != "allreduce":
        return 0.0
    if nodes == 1:
        return 200.0
    steps = ceil(log2(nodes))
    warm = min(1.0, row.num_bytes / (network.nics_per_node * steps) / 2**25)
    return 200 + 260 * steps * (1 - warm**2.5)


def apart(row: Row, causes: Sequence[Cause]) -> bool:
    """Whether our price is more than `WIDE` from the reference's."""
    return abs(price_us(row, causes) / row.us - 1) > WIDE


def main() -> None:
    rows = rows_of(Path(sys.argv[1]))
    classes: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        classes[row.label].append(row)
    steps = [CAUSES[:n] for n in range(len(CAUSES) + 1)]
    print(
        "| collective | group | bytes | prices | ours / theirs | apart | " + " | ".join(CAUSES), "|"
    )
    print("|---|---|---|---|---|---|" + "---|" * len(CAUSES))
    for label, members in sorted(classes.items()):
        ratio = median(price_us(row, ()) / row.us for row in members)
        counts = [sum(apart(row, causes) for row in members) for causes in steps]
        cells = " | ".join(map(str, counts))
        print(f"| {' | '.join(label)} | {len(members)} | {ratio:.2f} | {cells} |")
    counts = [sum(apart(row, causes) for row in rows) for causes in steps]
    print(f"| all | | | {len(rows)} | | {' | '.join(map(str, counts))} |")
    for row in rows:
        if apart(row, CAUSES):
            ours = price_us(row, CAUSES)
            size = f"{row.num_bytes / 2**20:g} MiB"
            print(f"left: {row.hw} {row.op} {row.group.size} {size} {ours:.0f} {row.us:.0f}")


if __name__ == "__main__":
    main()
