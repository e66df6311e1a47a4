"""Evaluations per second of one core, over distinct legal trials, as a Markdown table.

Run as `python -m benchmarks.evaluations_per_second [--profile]` from the repository root. Per
workload, in a process of its own: trials and how many schedules, depths and numbers of microbatches
they have, seconds to import the oracle, its first evaluation, the rate of the batch in CPU time,
peak memory, and this machine's speed at the same moment (a loop of 2 million multiplications, so
that rates of a busy machine can be told from slow code). `--profile` prints where the time goes.
"""

import cProfile
import pstats
import random
import resource
import subprocess
import sys
import time
from itertools import islice

CASES = ("mixtral", "llama", "deepseek")
POOL, BATCH = 300_000, 10_000
SPIN = 2_000_000


def spin_ms() -> float:
    """CPU time of a fixed loop."""
    started, total = time.process_time(), 0
    for number in range(SPIN):
        total += number * number
    return (time.process_time() - started) * 1000


def measure(case: str, profile: bool) -> None:
    started = time.process_time()
    from projection.oracle import Oracle

    import_s = time.process_time() - started
    from projection.legality import LegalSpace
    from schemas.evaluation import SignatureHashes
    from schemas.search import SearchSpec
    from tests.builders import cluster, deepseek_v3, llama_70b, mixtral_8x22b

    name, workload, on = {
        "mixtral": ("Mixtral 8x22B, 64 GPUs", mixtral_8x22b(), cluster(8)),
        "llama": ("Llama 3.1 70B, 64 GPUs", llama_70b(gbs=256), cluster(8)),
        "deepseek": ("DeepSeek V3, 256 GPUs", deepseek_v3(), cluster(32)),
    }[case]
    search = SearchSpec()
    # Every 30th of the pool, so that the pool itself does not count as the oracle's memory.
    pool = list(islice(LegalSpace(workload, on, search), 0, POOL, POOL // BATCH))
    trials = random.Random(0).sample(pool, len(pool))
    signature = SignatureHashes(model="0" * 16, cluster="0" * 16, stack="0" * 16)
    oracle = Oracle(workload, on, search, signature=signature)
    started = time.process_time()
    oracle.project(trials[0])
    first_ms = (time.process_time() - started) * 1000
    before = spin_ms()
    profiler = cProfile.Profile()
    if profile:
        profiler.enable()
    started, seen = time.process_time(), set()
    for trial in trials[1:]:
        result = oracle.project(trial)
        seen.add((result.schedule, trial.pp, trial.vpp, result.num_microbatches))
    rate = (len(trials) - 1) / (time.process_time() - started)
    if profile:
        profiler.disable()
        pstats.Stats(profiler).sort_stats("cumtime").print_stats(40)
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    loop = (before + spin_ms()) / 2
    print(
        f"| {name} | {len(trials):,} | {len(seen)} | {import_s:.2f} s | {first_ms:.0f} ms "
        f"| {rate:,.0f} | {peak_mb:.0f} MB | {loop:.0f} ms |",
        flush=True,
    )


def main() -> None:
    arguments = sys.argv[1:]
    if "--case" in arguments:
        measure(arguments[arguments.index("--case") + 1], "--profile" in arguments)
        return
    print("| space | trials | schedules | import | first | evaluations/s | peak memory | loop |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for case in CASES:
        own = [sys.executable, "-m", "benchmarks.evaluations_per_second", "--case", case]
        subprocess.run([*own, *arguments], check=True)


if __name__ == "__main__":
    main()
