"""What each step of a search costs to ask, to look up and to keep: the figures of docs/caching.md.

In ms, the median of repeated calls in one process and on a local disk: CPU time of asking and of
looking up, wall time of keeping, which waits for the disk. `python -m benchmarks.caching [FOLDER]`
keeps its store in FOLDER, else in the temporary folder.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from projection.legality import LegalSpace
from storage import Store
from storage.evaluation_cache import identity_of
from tasks.inputs import Inputs, resolve_pair
from tasks.kept_steps import axes_of, seeds_of
from tasks.resolve import known_workload, resolve_workload
from tasks.step_keys import code_of_the_plan, key_of_step

PAIRS = (
    ("mixtral_8x22B", "mi355x_4nodes"),
    ("llama3.1_70B", "h100_8nodes"),
    ("deepseek_v3", "mi325x_8nodes"),
)
EXAMPLES = Path("examples")
TRIALS, EVERY = 200, 97


def milliseconds(call: Callable[[], Any], times: int) -> float:
    """The median of so many calls."""
    return statistics.median(taken(call) for _ in range(times))


def taken(call: Callable[[], Any], clock: Callable[[], float] = time.process_time) -> float:
    began = clock()
    call()
    return 1e3 * (clock() - began)


def fails(warning: str) -> None:
    raise AssertionError(warning)


def plan_rows(inputs: Inputs, store: Store) -> list[Sequence[object]]:
    """Axes and seed plan: asked, looked up, kept."""
    answers = store.answers
    rows: list[Sequence[object]] = []
    for name, step in (("derive_axes", axes_of), ("seed_batch", seeds_of)):
        asked = milliseconds(partial(step, inputs, None, fails), 3)
        answer = step(inputs, answers, fails)
        known = milliseconds(partial(step, inputs, answers, fails), 20)
        assert step(inputs, answers, fails) == answer
        value = answers.find(name, key_of_step(name, inputs)).value
        puts = [partial(answers.put, name, f"{key:064}", value) for key in range(20)]
        kept = statistics.median(taken(put, time.perf_counter) for put in puts)
        rows.append((name, asked, known, kept))
    return rows


def trial_rows(inputs: Inputs, store: Store) -> list[Sequence[object]]:
    """Memory verdicts and scores of some legal trials: asked, looked up, kept."""
    space = LegalSpace(inputs.workload, inputs.cluster, inputs.search)
    trials = list(islice(space, 0, TRIALS * EVERY, EVERY))
    oracle, cache = inputs.oracle(), store.evaluations
    rows: list[Sequence[object]] = []
    for name, ask in (("memory_filter", oracle.memory), ("score", oracle.project)):
        asked, kept, known = [], [], []
        for trial in trials:
            asked.append(taken(partial(ask, trial)))
            answer = ask(trial)
            kept.append(taken(partial(cache.put, answer), time.perf_counter))
            known.append(taken(partial(cache.find, identity_of(answer))))
        rows.append((name, *(statistics.median(times) for times in (asked, known, kept))))
    return rows


def main() -> None:
    """Prints one table per pair of examples."""
    print(f"code of the plan, hashed once per process: {taken(code_of_the_plan):.0f} ms")
    for workload, cluster in PAIRS:
        files = EXAMPLES / f"workloads/{workload}.yaml", EXAMPLES / f"clusters/{cluster}.yaml"
        inputs = resolve_pair(*files, gemm_backend="tile")
        asked = milliseconds(partial(resolve_workload, files[0]), 20)
        known = milliseconds(partial(known_workload, files[0]), 20)
        rows: list[Sequence[object]] = [("resolve", asked, known, "-")]
        with tempfile.TemporaryDirectory(dir=sys.argv[1] if sys.argv[1:] else None) as folder:
            store = Store.at(Path(folder))
            rows += plan_rows(inputs, store) + trial_rows(inputs, store)
        print(f"\n{inputs.workload.name} on {inputs.cluster.name}")
        print(f"{'step':<14} {'ask':>9} {'look up':>9} {'keep':>9}")
        for name, *times in rows:
            shown = (f"{each:9.2f}" if isinstance(each, float) else f"{each:>9}" for each in times)
            print(f"{name:<14}", *shown)


if __name__ == "__main__":
    main()
