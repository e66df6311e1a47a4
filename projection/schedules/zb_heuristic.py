"""Zero bubble by greedy search, fitted to how long F, B, W and a transfer take."""

from collections.abc import Iterator

from projection.schedules.greedy import MODES, Greedy, fill
from projection.schedules.one_f_one_b import one_f_one_b
from projection.schedules.order import Orders
from projection.schedules.pass_times import PassTimes
from projection.schedules.placement import stage_table


def zb_heuristic(pp: int, num_microbatches: int, times: PassTimes) -> Orders:
    """The fastest of a family of greedy runs (Qi et al. 2023, section 3.1), then the leanest.

    Each runs the F and B of 1F1B as early as possible and fills W's into the gaps. They differ in
    how many microbatches a rank may hold (pp as 1F1B's rank 0, to 2pp as ZB-H2), in what may
    overtake, and in whether a W may delay a pass that is about to be ready. Without a limit the
    greedy rule would run all forwards first, so there always is one.
    """
    best: tuple[int, int] | None = None
    orders: Orders = ()
    for run in greedy_runs(pp, num_microbatches, times):
        rank = (run.makespan, run.peak_chunks)
        if best is None or rank < best:
            best, orders = rank, run.orders
    return orders


def greedy_runs(pp: int, num_microbatches: int, times: PassTimes) -> Iterator[Greedy]:
    """The runs that end no later than every one before them."""
    stages = stage_table("zb-heuristic", pp, 1)
    wanted = [
        tuple(op._replace(kind="B") if op.kind == "BW" else op for op in order)
        for order in one_f_one_b(pp, num_microbatches)
    ]
    bar = float("inf")
    for limit in sorted({pp, pp + pp // 2, 2 * pp}):
        for mode in MODES:
            for patience in sorted({0, times.weight_grad // 2}):
                run = fill(wanted, stages, times, limit, mode, patience, give_up_at=bar + 1)
                if run is not None:
                    bar = min(bar, run.makespan)
                    yield run
