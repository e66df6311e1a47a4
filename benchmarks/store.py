"""Cost of the event log: appends, fold, verification, listing, the best known recipe.

    python -m benchmarks.store [--events 100000] [--appends 500] [--runs 1000] [--folder DIR]

Prints one line per measurement. The events are a real search's (see `benchmarks.event_logs`). The
folder should lie on the disk whose durability is to be paid for: a memory-backed /tmp makes every
append look free. `best of` is the least of several attempts, which a busy machine disturbs least.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

from benchmarks.event_logs import CLUSTER, WORKLOAD, entries, mix, searched, write_long_log
from storage import EventLog, State, Store, fresh_run_id, list_runs, verify
from tasks.inputs import resolve_pair
from tasks.recall import recall

Result = TypeVar("Result")
REFOLD = (sys.executable, "-c", "from flows.cli import main; main()")
SPIN = 2_000_000


def quantile_ms(samples_s: list[float], percent: int) -> float:
    return 1000 * statistics.quantiles(samples_s, n=100)[percent - 1]


def measure_appends(root: Path, state: State, count: int) -> None:
    stream = entries(state, 2 * count + 5)
    opening = list(islice(stream, 3))
    samples_s = []
    with EventLog.create(root, fresh_run_id()) as log:
        log.append(opening, 0)
        for entry in islice(stream, count):
            start_s = time.perf_counter()
            log.append([entry], log.next_seq)
            samples_s.append(time.perf_counter() - start_s)
    tenth = max(1, len(samples_s) // 10)
    first_ms = 1000 * statistics.mean(samples_s[:tenth])
    last_ms = 1000 * statistics.mean(samples_s[-tenth:])
    print(
        f"append of one event: p50 {quantile_ms(samples_s, 50):.2f} ms,"
        f" p99 {quantile_ms(samples_s, 99):.2f} ms;"
        f" mean of the first tenth {first_ms:.2f} ms, of the last {last_ms:.2f} ms"
    )


def measure_batches(root: Path, state: State, batch: int = 1000, batches: int = 20) -> None:
    stream = entries(state, batch * (batches + 1))
    samples_s, samples_cpu_s = [], []
    with EventLog.create(root, fresh_run_id()) as log:
        for _ in range(batches):
            chunk = list(islice(stream, batch))
            start_s, start_cpu_s = time.perf_counter(), time.process_time()
            log.append(chunk, log.next_seq)
            samples_s.append(time.perf_counter() - start_s)
            samples_cpu_s.append(time.process_time() - start_cpu_s)
    print(
        f"append of {batch} events in one batch: p50 {1000 * statistics.median(samples_s):.0f} ms,"
        f" {1000 * min(samples_cpu_s):.0f} ms of CPU at best"
    )


def measure_reads(root: Path, run_id: str) -> None:
    log = EventLog.open(root, run_id)
    print(f"the log: {mix(log)}; {megabytes(root):.0f} MB")
    timed("fold of the verified log", log.state)
    report = timed("verify, which folds too", lambda: verify(root, run_id))
    print(f"{report.events:,} events found good{'' if report.ok else '; DAMAGED'}")
    with EventLog.open(root, run_id, writing=True) as writer:
        timed("compaction", writer.compact, attempts=1)
    print(f"compacted: {megabytes(root):.0f} MB")
    timed("verify, compacted", lambda: verify(root, run_id))


def timed(label: str, work: Callable[[], Result], attempts: int = 3) -> Result:
    """Run `work`; its wall time, and the CPU time of this process and of its children."""
    best = (float("inf"), 0.0, 0.0)
    for _ in range(attempts):
        start_s, start = time.perf_counter(), os.times()
        result = work()
        wall_s, end = time.perf_counter() - start_s, os.times()
        own_s = end.user + end.system - start.user - start.system
        children_s = sum(end[2:4]) - sum(start[2:4])
        best = min(best, (wall_s, own_s, children_s))
    print(
        f"{label}: {best[0]:.2f} s, {best[1]:.2f} s of CPU"
        f" and {best[2]:.2f} s in helpers (best of {attempts})",
        flush=True,
    )
    return result


def measure_listing(root: Path, state: State, runs: int) -> None:
    events = list(entries(state, 25))
    for _ in range(runs):
        with EventLog.create(root, fresh_run_id()) as log:
            log.append(events, 0)
            log.anchor_head()
    timed(f"listing of {runs} runs", lambda: list_runs(root), attempts=5)
    command = (*REFOLD, "runs", "--store", str(root), "--json")
    timed(
        "`refold runs` over them, start-up included",
        lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL),
        attempts=5,
    )


def measure_recipes(root: Path) -> None:
    """The best known recipe of the runs `measure_listing` has made: all asked one question."""
    inputs = resolve_pair(WORKLOAD, CLUSTER)
    timed("looking up the best known recipe", lambda: recall(Store.at(root), inputs), attempts=5)
    search = inputs.search.model_copy(update={"pinned": {"mbs": 4}})
    nothing = replace(inputs, search=search)
    timed("the same where none is allowed", lambda: recall(Store.at(root), nothing), attempts=2)
    command = (*REFOLD, "best", str(WORKLOAD), str(CLUSTER), "--store", str(root), "--json")
    timed(
        "`refold best` over them, start-up included",
        lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL),
        attempts=5,
    )


def megabytes(root: Path) -> float:
    return sum(path.stat().st_size for path in root.rglob("*.parquet")) / 1e6


def spin_ms() -> float:
    """CPU time of a fixed loop: tells a busy machine from slow code."""
    start_s, total = time.process_time(), 0
    for number in range(SPIN):
        total += number * number
    return (time.process_time() - start_s) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost of the event log.")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--appends", type=int, default=500)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--folder", type=Path, default=None)
    arguments = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} CPUs, load average {load:.1f}, loop {spin_ms():.0f} ms")
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        root = Path(folder)
        source = searched(root)
        state = source.state()
        measure_appends(root / "single", state, arguments.appends)
        measure_batches(root / "batched", state)
        run_id = write_long_log(source, root / "long", arguments.events)
        measure_reads(root / "long", run_id)
        measure_listing(root / "many", state, arguments.runs)
        measure_recipes(root / "many")


if __name__ == "__main__":
    main()
