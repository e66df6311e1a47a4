"""Evaluations per second of one core, over distinct legal trials.

Run as `python -m benchmarks.evaluations_per_second` from the repository root. Prints, per workload:
trials, schedules and depths among them, the first evaluation, the rate of the batch, how many fit.
"""

import random
import time
from itertools import islice

from projection.legality import LegalSpace
from projection.oracle import Oracle
from schemas.evaluation import SignatureHashes
from schemas.search import SearchSpec
from tests.builders import cluster, deepseek_v3, llama_70b, mixtral_8x22b

SIGNATURE = SignatureHashes(model="0" * 16, cluster="0" * 16, stack="0" * 16)
POOL, BATCH = 300_000, 3000


def main() -> None:
    search = SearchSpec()
    cases = {
        "Mixtral 8x22B, 64 GPUs": (mixtral_8x22b(), cluster(8)),
        "Llama 3.1 70B, 64 GPUs": (llama_70b(gbs=256), cluster(8)),
        "DeepSeek V3, 256 GPUs": (deepseek_v3(), cluster(32)),
    }
    for name, (workload, on) in cases.items():
        pool = list(islice(LegalSpace(workload, on, search), POOL))
        trials = random.Random(0).sample(pool, min(BATCH, len(pool)))
        oracle = Oracle(workload, on, search, signature=SIGNATURE)
        started = time.process_time()
        oracle.project(trials[0])
        first_ms = (time.process_time() - started) * 1000
        started = time.process_time()
        results = [oracle.project(trial) for trial in trials[1:]]
        rate = len(results) / (time.process_time() - started)
        schedules = {(r.schedule, r.config["pp"], r.config["vpp"]) for r in results}
        fitting = sum(bool(result.fits) for result in results)
        print(
            f"{name}: {len(trials)} trials of {len(pool)}, {len(schedules)} schedules and depths, "
            f"first {first_ms:.0f} ms, {rate:.0f} evaluations/s of CPU time, {fitting} fit"
        )


if __name__ == "__main__":
    main()
