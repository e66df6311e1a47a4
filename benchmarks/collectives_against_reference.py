"""Compares our collective prices with a table of another model's, and says where they part.

Run as `python -m benchmarks.collectives_against_reference TABLE.jsonl` from the repository root.
Each line of TABLE holds hw (mi300x, mi355x; others are left out), nodes, gpus, hp (ranks on one
node that are skipped between members: 1 for consecutive ranks), op, bytes and us.
"""

import json
import sys
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any

from projection.collectives import Collectives
from projection.placement import Group
from projection.profiles import achievable, gpu_profile, network_profile

WIDE = 0.25
SMALL, LARGE = 2**23, 2**26


def group_of(row: dict[str, Any], node_size: int) -> Group | None:
    """Consecutive ranks; strided groups are left out."""
    if row["hp"] != 1:
        return None
    per_node = min(row["gpus"], node_size)
    return Group(row["gpus"], per_node, row["gpus"] // per_node, 1)


def size_class(num_bytes: int) -> str:
    """Where latency, both or bandwidth decide."""
    if num_bytes <= SMALL:
        return "to 8 MiB"
    return "64 MiB" if num_bytes <= LARGE else "from 256 MiB"


def main() -> None:
    ratios: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    models: dict[str, Collectives] = {}
    seen = set()
    for line in Path(sys.argv[1]).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["hw"] not in ("mi300x", "mi355x"):
            continue
        network = network_profile(row["hw"])
        group = group_of(row, network.node_size)
        key = (row["hw"], row["op"], row["gpus"], row["bytes"])
        if group is None or key in seen:
            continue
        seen.add(key)
        if row["hw"] not in models:
            models[row["hw"]] = Collectives(network, achievable(gpu_profile(row["hw"])))
        ours = models[row["hw"]].price(row["op"], row["bytes"], group).time_ms * 1e3
        where = "inside a node" if group.num_nodes == 1 else "across nodes"
        ratios[row["hw"], row["op"], where, size_class(row["bytes"])].append(ours / row["us"])
    print("| GPU | collective | group | bytes | prices | ours / theirs | more than 25 % apart |")
    print("|---|---|---|---|---|---|---|")
    for (hw, op, where, size), values in sorted(ratios.items()):
        wide = sum(abs(value - 1) > WIDE for value in values)
        print(f"| {hw} | {op} | {where} | {size} | {len(values)} | {median(values):.2f} | {wide} |")
    every = [value for values in ratios.values() for value in values]
    apart = sum(abs(value - 1) > WIDE for value in every)
    print(f"\n{apart} of {len(every)} prices are more than 25 % apart; median {median(every):.2f}.")


if __name__ == "__main__":
    main()
