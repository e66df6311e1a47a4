"""Checks any schedule and any timeline from the definition of a pipeline, sharing no code with it.

Orders are per rank lists of (kind, microbatch, chunk); timelines add (start, end). Every check adds
a line to the list of problems, which is empty for a valid schedule.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

Order = Sequence[tuple[str, int, int]]
Timed = Sequence[tuple[str, int, int, float, float]]
Duration = Callable[[str, int, int], float]
"""Of (kind, rank, chunk)."""
Delay = Callable[[int, int], float]
"""Of a transfer from one virtual stage to a neighbour; only asked where they are on two ranks."""


def virtual_stage(rank: int, chunk: int, pp: int, folded: bool) -> int:
    if folded and chunk % 2:
        return chunk * pp + (pp - 1 - rank)
    return chunk * pp + rank


def check_orders(orders: Sequence[Order], vpp: int, m: int, folded: bool) -> list[str]:
    """Completeness, memory never under zero, no deadlock."""
    problems = _incomplete(orders, vpp, m)
    for rank, order in enumerate(orders):
        problems += _negative_memory(rank, order)
    return problems or _deadlock(orders, folded, vpp)


def check_timeline(
    timeline: Sequence[Timed], vpp: int, m: int, folded: bool, duration: Duration, delay: Delay
) -> list[str]:
    """Orders as above, and times: durations, serial ranks, inputs arrived, nothing started late."""
    orders = [[timed[:3] for timed in row] for row in timeline]
    problems = check_orders(orders, vpp, m, folded)
    if problems:
        return problems
    pp, top = len(timeline), len(timeline) * vpp - 1
    end_of = {}
    for rank, row in enumerate(timeline):
        for kind, i, c, _, end in row:
            part = "B" if kind == "BW" else kind
            end_of[part, virtual_stage(rank, c, pp, folded), i] = (end, rank)
    largest = max(end for row in timeline for *_, end in row)
    slack = 1e-9 * largest + 1e-300
    for rank, row in enumerate(timeline):
        free = 0.0
        for kind, i, c, start, end in row:
            name = f"{kind}({i},{c}) on rank {rank}"
            if abs(end - start - duration(kind, rank, c)) > slack:
                problems.append(f"{name} takes {end - start}")
            ready = free
            stage = virtual_stage(rank, c, pp, folded)
            for part, source in _inputs(kind, stage, top):
                came, from_rank = end_of[part, source, i]
                wait = delay(source, stage) if from_rank != rank else 0.0
                if start < came + wait - slack:
                    problems.append(f"{name} starts before {part}({i}) of stage {source} is there")
                ready = max(ready, came + wait)
            if start < free - slack:
                problems.append(f"{name} starts before its rank is free")
            if start > ready + slack:
                problems.append(f"{name} starts later than it could")
            free = end
    return problems


def peak_alive(order: Order, vpp: int) -> float:
    alive = most = 0
    for kind, *_ in order:
        alive += {"F": 1, "B": 0, "W": -1, "BW": -1}[kind]
        most = max(most, alive)
    return most / vpp


def _inputs(kind: str, stage: int, top: int) -> list[tuple[str, int]]:
    if kind == "F":
        return [("F", stage - 1)] if stage else []
    if kind == "W":
        return [("B", stage)]
    return [("F", stage), ("B", stage + 1)] if stage < top else [("F", stage)]


def _incomplete(orders: Sequence[Order], vpp: int, m: int) -> list[str]:
    problems = []
    for rank, order in enumerate(orders):
        count = Counter()
        for kind, i, c in order:
            for part in {"BW": "BW", "F": "F", "B": "B", "W": "W"}[kind]:
                count[part, i, c] += 1
        for part in "FBW":
            for i in range(m):
                for c in range(vpp):
                    times = count.pop((part, i, c), 0)
                    if times != 1:
                        problems.append(f"rank {rank} runs {part}({i},{c}) {times} times")
        problems += [f"rank {rank} runs {op}, which does not exist" for op in count]
    return problems


def _negative_memory(rank: int, order: Order) -> list[str]:
    problems = []
    alive: dict[tuple[str, int, int], bool] = defaultdict(bool)
    for kind, i, c in order:
        if kind == "F":
            alive["activation", i, c] = True
            continue
        needed = ("for weights", i, c) if kind == "W" else ("activation", i, c)
        if not alive.pop(needed, False):
            problems.append(f"{kind}({i},{c}) on rank {rank} frees what is not there")
        if kind == "B":
            alive["for weights", i, c] = True
    return problems + [f"rank {rank} never frees {what}" for what in alive]


def _deadlock(orders: Sequence[Order], folded: bool, vpp: int) -> list[str]:
    """Kahn's algorithm over rank order and inputs."""
    pp, top = len(orders), len(orders) * vpp - 1
    node_of = {}
    for rank, order in enumerate(orders):
        for place, (kind, i, c) in enumerate(order):
            stage = virtual_stage(rank, c, pp, folded)
            node_of["B" if kind == "BW" else kind, stage, i] = (rank, place)
    waits: dict[tuple[int, int], int] = {}
    followers = defaultdict(list)
    for rank, order in enumerate(orders):
        for place, (kind, i, c) in enumerate(order):
            stage = virtual_stage(rank, c, pp, folded)
            before = [node_of[part, source, i] for part, source in _inputs(kind, stage, top)]
            before += [(rank, place - 1)] if place else []
            waits[rank, place] = len(before)
            for node in before:
                followers[node].append((rank, place))
    free = [node for node, count in waits.items() if count == 0]
    ran = 0
    while free:
        ran += 1
        for node in followers[free.pop()]:
            waits[node] -= 1
            if waits[node] == 0:
                free.append(node)
    blocked = len(waits) - ran
    return [f"deadlock: {blocked} ops never become ready"] if blocked else []
