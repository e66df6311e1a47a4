"""Checks that every evaluation's breakdowns add up, over the legal spaces of three workloads.

Run as `python -m benchmarks.breakdown_sums [STRIDE [TRIALS]]` from the repository root: every
STRIDE-th legal trial (default 1), at most TRIALS of each workload (default all), none held.
"""

import sys
from itertools import islice

from projection.legality import LegalSpace
from projection.oracle import Oracle
from schemas.evaluation import Evaluation, SignatureHashes
from schemas.search import SearchSpec
from tests.builders import cluster, deepseek_v3, llama_70b, mixtral_8x22b

SIGNATURE = SignatureHashes(model="0" * 16, cluster="0" * 16, stack="0" * 16)
TOLERANCE = 1e-9


def error(parts: dict[str, float], whole: float | None) -> float:
    """Relative difference of a breakdown's sum from what it breaks down."""
    return abs(sum(parts.values()) - (whole or 0.0)) / (whole or 1.0)


def worst_error(result: Evaluation) -> float:
    """Of time and memory, the worse; infinite when a part is negative or the trial is refused."""
    if not result.legal or min(result.time_breakdown_ms.values()) < 0:
        return float("inf")
    time_error = error(result.time_breakdown_ms, result.iteration_ms)
    return max(time_error, error(result.memory_breakdown_gb, result.memory_per_gpu_gb))


def main() -> None:
    stride = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    end = stride * int(sys.argv[2]) if len(sys.argv) > 2 else None
    search = SearchSpec()
    cases = {
        "Mixtral 8x22B, 64 GPUs": (mixtral_8x22b(), cluster(8)),
        "Llama 3.1 70B, 64 GPUs": (llama_70b(gbs=256), cluster(8)),
        "DeepSeek V3, 256 GPUs": (deepseek_v3(), cluster(32)),
    }
    failed = False
    for name, (workload, on) in cases.items():
        oracle = Oracle(workload, on, search, signature=SIGNATURE)
        count, worst = 0, 0.0
        for trial in islice(LegalSpace(workload, on, search), 0, end, stride):
            count, worst = count + 1, max(worst, worst_error(oracle.project(trial)))
        failed |= worst > TOLERANCE
        print(f"{name}: {count} trials, largest relative error {worst:.1e}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
