"""Builds an order by running it: passes as early as they can, weight gradients into the gaps.

Given the order in which a rank would like to run its F and B, integer pass times and a limit on
what a rank may hold, every rank takes, whenever it is free, the first that applies:

1. the next wanted pass, when its input is there and, for an F, memory is left;
2. a later B whose input is there (mode "early-grads" and up: it only frees memory);
3. a later F whose input is there, when the passes it overtakes still fit (mode "early-forwards");
4. the oldest W, unless the next wanted pass becomes ready within `patience`;
5. nothing, until an input arrives.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import islice
from typing import Literal

from projection.schedules.execute import Key, needs
from projection.schedules.order import Op, Orders
from projection.schedules.pass_times import PassTimes

Mode = Literal["in-order", "early-grads", "early-forwards"]
START: Key = ("F", -1, 0)
"""What the F of the first stage waits for."""
NEVER = float("inf")
LOOK_AHEAD = 12
"""Wanted passes a rank looks through for one that can overtake."""


@dataclass(frozen=True, slots=True)
class Greedy:
    """An order the greedy run produced, its time and the most chunks a rank held (F to W)."""

    orders: Orders
    makespan: int
    peak_chunks: int


def fill(
    wanted: Sequence[Sequence[Op]],
    stages: Sequence[Sequence[int]],
    times: PassTimes,
    limit: int,
    mode: Mode = "in-order",
    patience: int = 0,
    give_up_at: float = NEVER,
) -> Greedy | None:
    """Run the wanted F and B of every rank with W's filled in, holding at most `limit` chunks.

    None when the limit leaves the wanted order stuck, or when the run can't end before
    `give_up_at`. Times must be positive, P2P may be 0.
    """
    run = _Run(wanted, stages, times, limit, mode, patience)
    return run.result if run.finish(give_up_at) else None


class _Run:
    def __init__(
        self,
        wanted: Sequence[Sequence[Op]],
        stages: Sequence[Sequence[int]],
        times: PassTimes,
        limit: int,
        mode: Mode,
        patience: int,
    ) -> None:
        self.stages, self.times, self.limit = stages, times, limit
        self.mode, self.patience = mode, patience
        num_stages = len(stages) * len(stages[0])
        self.rank_of = {stage: rank for rank, row in enumerate(stages) for stage in row}
        self.todo = [
            deque((op, needs(op, row[op.chunk], num_stages) or START) for op in ops)
            for ops, row in zip(wanted, stages, strict=True)
        ]
        self.grads: list[deque[Op]] = [deque() for _ in wanted]
        self.orders: list[list[Op]] = [[] for _ in wanted]
        self.held = [0] * len(wanted)
        self.peak = 0
        self.free_at = [0] * len(wanted)
        per_pair = times.forward + times.input_grad + times.weight_grad
        self.work = [len(ops) // 2 * per_pair for ops in wanted]
        self.ready_at: dict[Key, float] = {START: 0}
        """When the op behind a key has ended and its result is on the consumer's rank."""
        self.wake = [(0, rank) for rank in range(len(wanted))]

    @property
    def result(self) -> Greedy:
        orders = tuple(map(tuple, self.orders))
        return Greedy(orders, max(self.free_at), self.peak)

    def finish(self, give_up_at: float) -> bool:
        while self.wake:
            now, rank = heappop(self.wake)
            if now < self.free_at[rank]:
                continue
            op = self._choose(rank, now)
            if op is None:
                continue
            if now + self.work[rank] >= give_up_at:
                return False
            self._start(rank, op, now)
        return not any(self.work)

    def _choose(self, rank: int, now: int) -> Op | None:
        todo = self.todo[rank]
        if todo:
            if self._next_ready(rank) <= now:
                return todo.popleft()[0]
            early = self._overtaking(rank, now) if self.mode != "in-order" else 0
            if early:
                op = todo[early][0]
                del todo[early]
                return op
        grads = self.grads[rank]
        if grads and not (todo and self._next_ready(rank) <= now + self.patience):
            return grads.popleft()
        return None

    def _next_ready(self, rank: int) -> float:
        """When the next wanted pass can start; NEVER while its input or memory is not there."""
        op, key = self.todo[rank][0]
        if op.kind == "F" and self.held[rank] >= self.limit:
            return NEVER
        return self.ready_at.get(key, NEVER)

    def _overtaking(self, rank: int, now: int) -> int:
        """Place among the wanted passes of one that can run before the next one; 0 for none.

        The first B, else the first F that leaves room for every pass it overtakes, once W's have
        run. (A B whose input is there has had its own F.)
        """
        forward = 0
        held = self.held[rank] - len(self.grads[rank]) + 1
        room = self.mode == "early-forwards" and self.held[rank] < self.limit
        for place, (op, key) in enumerate(islice(self.todo[rank], LOOK_AHEAD)):
            if place and self.ready_at.get(key, NEVER) <= now:
                if op.kind == "B":
                    return place
                if room and not forward:
                    forward = place
            held += 1 if op.kind == "F" else -1
            room = room and held <= self.limit
        return forward

    def _start(self, rank: int, op: Op, now: int) -> None:
        self.orders[rank].append(op)
        stage = self.stages[rank][op.chunk]
        if op.kind == "F":
            duration = self.times.forward
            self.held[rank] += 1
            self.peak = max(self.peak, self.held[rank])
            self._send(rank, op, stage, stage + 1, now + duration)
        elif op.kind == "B":
            duration = self.times.input_grad
            self.grads[rank].append(Op("W", op.microbatch, op.chunk))
            self._send(rank, op, stage, stage - 1, now + duration)
        else:
            duration = self.times.weight_grad
            self.held[rank] -= 1
        self.free_at[rank] = now + duration
        self.work[rank] -= duration
        heappush(self.wake, (now + duration, rank))

    def _send(self, rank: int, op: Op, stage: int, to_stage: int, end: int) -> None:
        to_rank = self.rank_of.get(to_stage, rank)
        arrival = end + (self.times.p2p if to_rank != rank else 0)
        self.ready_at[op.kind, stage, op.microbatch] = arrival
        if to_rank != rank:
            heappush(self.wake, (arrival, to_rank))
