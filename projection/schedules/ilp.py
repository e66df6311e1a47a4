"""Where the weight gradients go, by integer programming with HiGHS.

The order of F and B on every rank is given (by the greedy runs), W's follow the order of their B's.
So a placement is a count: how many W's rank r has run by the end of the gap behind its F or B at
place k. With start times t and these running counts c,

    minimise T
    t[r, k + 1] >= t[r, k] + d[r, k] + w (c[r, k] - c[r, k - 1])    rank r runs one op at a time
    t[r, k]     >= t[s, l] + d[s, l] + p2p               for the pass (s, l) that sends its input
    T           >= t[r, end] + d[r, end] + w (c[r, end] - c[r, end - 1])
    c[r, k]     >= c[r, k - 1]
    c[r, k]     <= B's among places 0 to k                          a W follows its B
    c[r, k - 1] >= F's among places 0 to k - limit                  memory, before every F at k

which needs no big-M, unlike the formulation that also orders F and B (Qi et al. 2023, appendix G).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from projection.schedules.bounds import lower_bound_ms
from projection.schedules.execute import Key, needs, start_times
from projection.schedules.greedy import Greedy
from projection.schedules.order import Op, Orders
from projection.schedules.pass_times import PassTimes, equal_stages
from projection.schedules.placement import stage_table
from projection.schedules.schedule import SolverReport
from projection.schedules.zb_heuristic import greedy_runs
from schemas.errors import EnvironmentMissing

MAX_PASSES = 512
"""Largest pp x microbatches worth giving to the solver."""
MAX_NODES = 200
"""Branch-and-bound nodes: the bound on time that leaves the result the same on every machine."""
MAX_SECONDS = 10.0
"""Only against a solver that hangs in one node."""
MAX_ORDERS = 2
"""Different orders of F and B that are tried."""


@dataclass(frozen=True, slots=True)
class Solved:
    """An order and its report."""

    orders: Orders
    report: SolverReport


def place_grads(pp: int, num_microbatches: int, times: PassTimes) -> Solved:
    """The best order found: greedy runs first, their W's then placed by HiGHS.

    Bounded in nodes, so deterministic; the incumbent stands when the bound is hit. Raises
    EnvironmentMissing when SciPy is not installed.
    """
    found = greedy_runs(pp, num_microbatches, times)
    runs = sorted(found, key=lambda run: (run.makespan, run.peak_chunks))
    bound = lower_bound_ms(_stages(pp), num_microbatches, True, equal_stages(pp, times))
    best = _Placed(runs[0].orders, float(runs[0].makespan), None, "", 0)
    nodes = 0
    for run in _distinct(runs):
        placed = _place(run, pp, num_microbatches, times)
        nodes += placed.nodes
        if placed.makespan < best.makespan or not best.status:
            best = placed
    gap = (best.makespan - bound) / best.makespan
    greedy = float(runs[0].makespan)
    return Solved(
        best.orders, SolverReport(best.status, best.makespan, greedy, bound, gap, best.gap, nodes)
    )


class _Placed(NamedTuple):
    orders: Orders
    makespan: float
    gap: float | None
    status: str
    nodes: int


def _distinct(runs: Sequence[Greedy]) -> list[Greedy]:
    """The best run of each of the best orders of F and B."""
    first: dict[Orders, Greedy] = {}
    for run in runs:
        first.setdefault(_passes(run.orders), run)
    return list(first.values())[:MAX_ORDERS]


def _passes(orders: Orders) -> Orders:
    return tuple(tuple(op for op in order if op.kind != "W") for order in orders)


def _place(run: Greedy, pp: int, num_microbatches: int, times: PassTimes) -> _Placed:
    """Solve for the counts at the run's order of F and B; the run itself when HiGHS finds none."""
    optimize = _solver()
    passes = _passes(run.orders)
    model = _Model(passes, num_microbatches, times, max(run.peak_chunks, pp))
    found = optimize.milp(
        constraints=[model.constraints(optimize)],
        options={"node_limit": MAX_NODES, "time_limit": MAX_SECONDS},
        **model.columns(optimize),
    )
    nodes = int(found.mip_node_count or 0)
    status = _outcome(int(found.status), found.x is not None)
    if found.x is None:
        return _Placed(run.orders, float(run.makespan), None, status, nodes)
    orders = _with_grads(passes, model.counts(found.x))
    makespan = _makespan(orders, times)
    if makespan >= run.makespan:
        orders, makespan = run.orders, float(run.makespan)
    gap = max((makespan - float(found.mip_dual_bound)) / makespan, 0.0)
    return _Placed(orders, makespan, gap, status, nodes)


def _outcome(status: int, found_any: bool) -> str:
    """SciPy's status in words; it has no code of its own for HiGHS's node limit."""
    if status == 0:
        return "HiGHS: optimal"
    if status == 1:
        return f"HiGHS: stopped after {MAX_SECONDS:g} s"
    return f"HiGHS: stopped after {MAX_NODES} nodes" if found_any else "HiGHS: found no placement"


def _solver() -> ModuleType:
    """SciPy's `optimize`, which carries HiGHS (highspy prints a banner to standard output)."""
    try:
        import scipy.optimize
    except ImportError as error:
        raise EnvironmentMissing(
            "schedule 'ilp' needs HiGHS, and SciPy is not installed", hint="pip install scipy"
        ) from error
    optimize: ModuleType = scipy.optimize
    return optimize


class _Model:
    """Columns: starts by rank and place, then running counts by rank and place, then T."""

    def __init__(self, passes: Orders, num_microbatches: int, times: PassTimes, limit: int) -> None:
        self.passes, self.times, self.limit = passes, times, limit
        self.per_rank = 2 * num_microbatches
        self.size = len(passes) * self.per_rank
        self.num_columns = 2 * self.size + 1
        self.rows: list[tuple[float, dict[int, float]]] = []
        """Each at least a number: (number, factor by column)."""
        self._ops_in_turn()
        self._inputs()

    def columns(self, optimize: ModuleType) -> dict[str, Any]:
        """Objective, bounds and integrality, as `milp` takes them."""
        least, most = self._count_bounds()
        starts, unbounded = np.zeros(self.size), np.full(self.size, np.inf)
        lower = np.concatenate((starts, least, [0.0]))
        upper = np.concatenate((unbounded, most, [np.inf]))
        return {
            "c": np.concatenate((np.zeros(2 * self.size), [1.0])),
            "bounds": optimize.Bounds(lower, upper),
            "integrality": np.concatenate((starts, np.ones(self.size), [0.0])),
        }

    def constraints(self, optimize: ModuleType) -> Any:
        """The rows, as `milp` takes them."""
        from scipy.sparse import csr_array

        data = [factor for _, row in self.rows for factor in row.values()]
        column = [column for _, row in self.rows for column in row]
        start = np.cumsum([0, *(len(row) for _, row in self.rows)])
        matrix = csr_array((data, column, start), shape=(len(self.rows), self.num_columns))
        return optimize.LinearConstraint(matrix, np.array([least for least, _ in self.rows]))

    def counts(self, values: NDArray[np.float64]) -> list[list[int]]:
        """W's behind every pass, per rank."""
        behind = []
        for at in range(self.size, 2 * self.size, self.per_rank):
            running = [0, *(round(value) for value in values[at : at + self.per_rank])]
            behind.append([after - before for before, after in pairwise(running)])
        return behind

    def _duration(self, op: Op) -> float:
        return self.times.forward if op.kind == "F" else self.times.input_grad

    def _ops_in_turn(self) -> None:
        for rank, order in enumerate(self.passes):
            for place, op in enumerate(order):
                column = rank * self.per_rank + place
                follows = column + 1 if place + 1 < self.per_rank else self.num_columns - 1
                count, w = self.size + column, float(self.times.weight_grad)
                row = {follows: 1.0, column: -1.0, count: -w}
                if place > 0:
                    row[count - 1] = w
                    self.rows.append((0.0, {count: 1.0, count - 1: -1.0}))
                self.rows.append((self._duration(op), row))

    def _inputs(self) -> None:
        column_of: dict[Key, int] = {
            (op.kind, rank, op.microbatch): rank * self.per_rank + place
            for rank, order in enumerate(self.passes)
            for place, op in enumerate(order)
        }
        for rank, order in enumerate(self.passes):
            for op in order:
                key = needs(op, rank, len(self.passes))
                if key is not None and key[1] != rank:
                    wait = self._duration(op) + self.times.p2p
                    column = column_of[op.kind, rank, op.microbatch]
                    self.rows.append((wait, {column: 1.0, column_of[key]: -1.0}))

    def _count_bounds(self) -> tuple[list[float], list[float]]:
        least: list[float] = []
        most: list[float] = []
        for order in self.passes:
            forwards = list(accumulate(op.kind == "F" for op in order))
            backwards = list(accumulate(op.kind == "B" for op in order))
            held = [after - self.limit for after in forwards[1:]]
            least += [float(max(number, 0)) for number in (*held, backwards[-1])]
            most += map(float, backwards)
        return least, most


def _stages(pp: int) -> tuple[tuple[int, ...], ...]:
    return stage_table("ilp", pp, 1)


def _makespan(orders: Orders, times: PassTimes) -> float:
    costs = equal_stages(len(orders), times)
    starts = start_times(orders, _stages(len(orders)), costs)
    return max(
        began[-1] + costs.duration(order[-1].kind, 0)
        for order, began in zip(orders, starts, strict=True)
    )


def _with_grads(passes: Orders, counts: Sequence[Sequence[int]]) -> Orders:
    orders = []
    for order, behind in zip(passes, counts, strict=True):
        grads = iter([op.microbatch for op in order if op.kind == "B"])
        merged: list[Op] = []
        for op, count in zip(order, behind, strict=True):
            merged.append(op)
            merged.extend(Op("W", next(grads), 0) for _ in range(count))
        orders.append(tuple(merged))
    return tuple(orders)
