"""Zero bubble by greedy search, fitted to how long F, B, W and a transfer take."""

from collections.abc import Iterator

from projection.schedules.bounds import lower_bound_ms
from projection.schedules.execute import makespan
from projection.schedules.greedy import Greedy, Mode, fill
from projection.schedules.one_f_one_b import one_f_one_b
from projection.schedules.order import Orders
from projection.schedules.pass_times import PassTimes, equal_stages
from projection.schedules.placement import stage_table
from projection.schedules.zero_bubble import zero_bubble


def zb_heuristic(pp: int, num_microbatches: int, times: PassTimes) -> Orders:
    """The fastest of a family of greedy runs (Qi et al. 2023, section 3.1), then the leanest.

    Each runs the F and B of 1F1B as early as possible and fills W's into the gaps. They differ in
    how many microbatches a rank may hold (pp as 1F1B's rank 0, to 2pp as ZB-H2), in what may
    overtake, and in whether a W may delay a pass that is about to be ready. Without a limit the
    greedy rule would run all forwards first, so there always is one. Where even the fastest ends
    after ZB-H1, whose order no greedy run finds, it is ZB-H1.
    """
    runs = greedy_runs(pp, num_microbatches, times)
    fastest = min(runs, key=lambda run: (run.makespan, run.peak_chunks))
    stages, costs = stage_table("zb-heuristic", pp, 1), equal_stages(pp, times)
    if fastest.makespan <= lower_bound_ms(stages, num_microbatches, True, costs):
        return fastest.orders
    fixed = zero_bubble(pp, num_microbatches)
    return fixed if makespan(fixed, stages, costs) < fastest.makespan else fastest.orders


def greedy_runs(pp: int, num_microbatches: int, times: PassTimes) -> list[Greedy]:
    """The runs that end no later than every leaner one, up to the first that meets the bound."""
    stages = stage_table("zb-heuristic", pp, 1)
    bound = lower_bound_ms(stages, num_microbatches, True, equal_stages(pp, times))
    wanted = [
        tuple(op._replace(kind="B") if op.kind == "BW" else op for op in order)
        for order in one_f_one_b(pp, num_microbatches)
    ]
    runs: list[Greedy] = []
    for limit, mode, patience in _family(pp, times):
        bar = min((run.makespan for run in runs), default=float("inf"))
        if bar <= bound:
            break
        run = fill(wanted, stages, times, limit, mode, patience, give_up_at=bar + 1)
        if run is not None:
            runs.append(run)
    return runs


def _family(pp: int, times: PassTimes) -> Iterator[tuple[int, Mode, int]]:
    """(limit, mode, patience), the leanest first.

    Of limits, modes and both patiences, those left out were never alone the fastest over 70 random
    sizes and times.
    """
    half = times.weight_grad // 2
    yield pp, "in-order", half
    for limit in sorted({pp, pp + pp // 2, 2 * pp}):
        for patience in sorted({half, 0}):
            yield limit, "early-forwards", patience
