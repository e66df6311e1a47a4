"""Cost of the event log: durable appends, and fold with full verification.

    python -m benchmarks.store [--events 100000] [--appends 500] [--runs 100] [--folder DIR]

Prints one line per measurement. The folder should lie on the disk whose durability is to be paid
for: a memory-backed /tmp makes every append look free.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

from schemas.evaluation import Evaluation, SignatureHashes
from schemas.events import (
    AxesDerived,
    Event,
    RoundStarted,
    RunStarted,
    TrialProposed,
    TrialScored,
)
from schemas.legality import LegalAxes
from schemas.search import Budget, SearchSpec
from schemas.trial import NormalTrial, TrialConfig
from storage import Entry, EventLog, fold, fresh_run_id, list_runs, verify

Result = TypeVar("Result")
SIGNATURE = SignatureHashes(model="1" * 16, cluster="2" * 16, stack="3" * 16)


def trial(number: int) -> NormalTrial:
    return NormalTrial(
        tp=1, pp=4, ep=8, etp=1, cp=1, vpp=1, mbs=2, gbs=number + 1, pp_schedule="1f1b",
        recompute_granularity="none", recompute_method=None, recompute_num_layers=0,
        overlap_grad_reduce=True, overlap_param_gather=True, cross_entropy_loss_fusion=True,
        use_distributed_optimizer=True, use_torch_fsdp2=False, use_turbo_deepep=False,
        sync_free_stage=0, target_ep_size=None, fp8="none",
    )  # fmt: skip


def evaluation(config: NormalTrial, number: int) -> Evaluation:
    """One with as many parts as a real one: 12 memory, 10 time and 6 communication terms."""
    return Evaluation(
        trial_id=config.trial_id,
        config=config.model_dump(mode="json"),
        legal=True,
        fits=True,
        cap_gb=259.2,
        memory_per_gpu_gb=182.8 + number / 7,
        param_optimizer_gb=79.26,
        activation_gb=103.54,
        memory_breakdown_gb={f"component_{i}": 15.23 + i / 3 for i in range(12)},
        iteration_ms=5123.4 + number / 3,
        tokens_per_s_per_gpu=3260.0 - number / 11,
        bubble_ratio=0.125,
        time_breakdown_ms={f"term_{i}": 512.3 + i / 7 for i in range(10)},
        comm_breakdown={f"collective_{i}": 32.1 + i / 9 for i in range(6)},
        source="simulate",
        provenance="analytic",
        signature=SIGNATURE,
    )


def opening() -> list[Entry]:
    spec = RunStarted(
        workload_name="w", cluster_name="c", workload_blob="0" * 64, cluster_blob="0" * 64,
        input_blobs={}, search=SearchSpec(), signature=SIGNATURE, signature_parts={},
        refold_version="0", projection_version="0",
    )  # fmt: skip
    round_started = RoundStarted(proposer="exhaustive", planned=10**6, budget=Budget())
    return [Entry(spec), Entry(AxesDerived(axes=LegalAxes(axes=()))), Entry(round_started, 0)]


def candidate(number: int) -> list[Entry]:
    config = trial(number)
    proposal: Event = TrialProposed(
        trial_id=config.trial_id, requested=TrialConfig(gbs=config.gbs), config=config,
        rule="grid", why="a neighbour", tag=f"gbs{config.gbs}",
        call=None,
    )  # fmt: skip
    score: Event = TrialScored(trial_id=config.trial_id, evaluation=evaluation(config, number))
    return [Entry(proposal, 0, number), Entry(score, 0, number)]


def quantile_ms(samples_s: list[float], percent: int) -> float:
    return 1000 * statistics.quantiles(samples_s, n=100)[percent - 1]


def measure_appends(root: Path, count: int) -> None:
    with EventLog.create(root, fresh_run_id()) as log:
        log.append(opening(), 0)
        samples_s = []
        for number in range(count):
            proposal, score = candidate(number)
            log.append([proposal], log.next_seq)
            start_s = time.perf_counter()
            log.append([score], log.next_seq)
            samples_s.append(time.perf_counter() - start_s)
    tenth = max(1, count // 10)
    first_ms = 1000 * statistics.mean(samples_s[:tenth])
    last_ms = 1000 * statistics.mean(samples_s[-tenth:])
    print(
        f"append of one event: p50 {quantile_ms(samples_s, 50):.2f} ms,"
        f" p99 {quantile_ms(samples_s, 99):.2f} ms;"
        f" mean of the first tenth {first_ms:.2f} ms, of the last {last_ms:.2f} ms"
    )


def measure_batches(root: Path, events: int) -> str:
    run_id = fresh_run_id()
    entries = [entry for number in range(events // 2) for entry in candidate(number)]
    with EventLog.create(root, run_id) as log:
        log.append(opening(), 0)
        samples_s = []
        for first in range(0, len(entries), 1000):
            start_s = time.perf_counter()
            log.append(entries[first : first + 1000], log.next_seq)
            samples_s.append(time.perf_counter() - start_s)
        log.anchor_head()
    print(f"append of 1000 events in one batch: p50 {1000 * statistics.median(samples_s):.1f} ms")
    return run_id


def measure_reads(root: Path, run_id: str) -> None:
    log = EventLog.open(root, run_id)
    envelopes = timed("verified read", log.read)
    timed("fold of the envelopes", partial(fold, envelopes))
    events = len(envelopes)
    del envelopes
    timed("verified read and fold", log.state)
    report = timed("verify", lambda: verify(root, run_id))
    size_mb = sum(p.stat().st_size for p in root.rglob("*.parquet")) / 1e6
    print(f"the above over {events} events, {report.events} found good, {size_mb:.1f} MB")


def timed(label: str, work: Callable[[], Result]) -> Result:
    """Run `work`; wall time beside CPU time, which a loaded machine leaves alone."""
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    result = work()
    cpu_s = time.process_time() - start_cpu_s
    print(f"{label}: {time.perf_counter() - start_s:.2f} s, {cpu_s:.2f} s of CPU")
    return result


def measure_listing(root: Path, runs: int) -> None:
    for _ in range(runs):
        with EventLog.create(root, fresh_run_id()) as log:
            log.append([*opening(), *candidate(0)], 0)
            log.anchor_head()
    start_s = time.perf_counter()
    found = list_runs(root)
    print(f"listing of {len(found)} runs: {1000 * (time.perf_counter() - start_s):.0f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost of the event log.")
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--appends", type=int, default=500)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--folder", type=Path, default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        root = Path(folder)
        measure_appends(root / "single", arguments.appends)
        run_id = measure_batches(root / "batched", arguments.events)
        measure_reads(root / "batched", run_id)
        measure_listing(root / "many", arguments.runs)


if __name__ == "__main__":
    main()
