"""Checks that every evaluation's breakdowns add up, over the legal spaces of three workloads.

Run as `python -m benchmarks.breakdown_sums [--case llama|mixtral|deepseek] [--stride N]` from the
repository root: every N-th legal trial (default every one) of one or all of the three, none held.
So that every one can be asked in minutes, the two spaces of millions are those of a cluster file
that pins an axis or two to the workload's value. `tests/projection/test_breakdown_sums.py` does the
same for every trial of three smaller spaces.
"""

import argparse
import sys

from projection.legality import LegalSpace
from projection.oracle import Oracle
from schemas.evaluation import Evaluation, SignatureHashes
from schemas.search import AxisToggles, SearchSpec
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


CASES = {
    "llama": ("Llama 3.1 70B, 64 GPUs", llama_70b(gbs=256), cluster(8), AxisToggles()),
    "mixtral": (
        "Mixtral 8x22B, 64 GPUs, recompute pinned",
        mixtral_8x22b(),
        cluster(8),
        AxisToggles(recompute=False),
    ),
    "deepseek": (
        "DeepSeek V3, 256 GPUs, recompute and micro batch pinned",
        deepseek_v3(),
        cluster(32),
        AxisToggles(recompute=False, mbs=False),
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--stride", type=int, default=1)
    asked = parser.parse_args()
    failed = False
    for case in [asked.case] if asked.case else CASES:
        name, workload, on, axes = CASES[case]
        search = SearchSpec(axes=axes)
        oracle = Oracle(workload, on, search, signature=SIGNATURE)
        space = LegalSpace(workload, on, search)
        count, worst = 0, 0.0
        indices = range(0, space.count(), asked.stride)
        trials = space if asked.stride == 1 else map(space.__getitem__, indices)
        for trial in trials:
            count, worst = count + 1, max(worst, worst_error(oracle.project(trial)))
        failed |= worst > TOLERANCE
        print(
            f"{name}: {count:,} of {space.count():,} trials, largest relative error {worst:.1e}",
            flush=True,
        )
    sys.exit(failed)


if __name__ == "__main__":
    main()
