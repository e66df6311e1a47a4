"""What timing one schedule costs: PP 16, 512 microbatches, uniform inner stages, heavier ends.

`python -m benchmarks.schedules` from the repository root prints the table of docs/performance.md:
CPU time of `simulate` on a built schedule, the best of nine, over ends that are equal, clearly
apart, and nearly equal, where queues fill slowly and the steady state comes late.
"""

import random
import time
from collections.abc import Callable, Iterator
from functools import partial

from projection.schedules import Durations, PipelineSchedule, build, simulate
from schemas.trial import Schedule

PP, MICROBATCHES, REPEATS = 16, 512, 9
DELAYS_MS = (0.0, 0.05, 0.5)
SCHEDULES: tuple[tuple[Schedule, int], ...] = (
    ("1f1b", 1),
    ("interleaved", 2),
    ("zero-bubble", 1),
    ("zb-heuristic", 1),
    ("zbv-formatted", 2),
    ("zbv-greedy-half", 2),
    ("zbv-greedy-min", 2),
)


def ends() -> Iterator[tuple[float, float]]:
    """What the first and the last virtual stage take more, in stages."""
    yield from ((0.0, 0.0), (0.1, 0.2), (0.2, 0.2), (0.3, 0.299), (0.01, 0.011), (0.0, 0.01))
    rng = random.Random(3)
    for _ in range(20):
        first = rng.random() / 2
        yield first, first * (1 + rng.choice((-1, 1)) * 10 ** -rng.uniform(1, 5))


def durations(schedule: PipelineSchedule, first: float, last: float) -> Durations:
    """F 3.1, B 4.2, W 2.9 ms a stage, and the ends' share on top."""
    extra = {schedule.homes[0]: first}
    extra[schedule.homes[-1]] = extra.get(schedule.homes[-1], 0.0) + last

    def table(ms: float) -> tuple[tuple[float, ...], ...]:
        return tuple(
            tuple(
                ms * (1 / schedule.vpp + extra.get((rank, chunk), 0.0))
                for chunk in range(schedule.vpp)
            )
            for rank in range(PP)
        )

    return Durations(table(3.1), table(4.2), table(2.9))


def best_ms(run: Callable[[], object]) -> float:
    """Least CPU time of a few runs."""
    spent = []
    for _ in range(REPEATS):
        before = time.thread_time()
        run()
        spent.append((time.thread_time() - before) * 1e3)
    return min(spent)


def main() -> None:
    print("| schedule | VPP | build ms | median ms | worst ms | all run ms |")
    print("|---|---|---|---|---|---|")
    for name, vpp in SCHEDULES:
        before = time.thread_time()
        schedule = build(name, PP, vpp, MICROBATCHES)
        built = (time.thread_time() - before) * 1e3
        costs = []
        for first, last in ends():
            times = durations(schedule, first, last)
            for delay in DELAYS_MS:
                costs.append(best_ms(partial(simulate, schedule, times, delay)))
        costs.sort()
        full = best_ms(partial(simulate, schedule, times, extrapolate=False))
        print(
            f"| {name} | {vpp} | {built:.0f} | {costs[len(costs) // 2]:.2f} | {costs[-1]:.2f} "
            f"| {full:.2f} |"
        )


if __name__ == "__main__":
    main()
