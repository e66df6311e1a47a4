"""The query over all runs, on a store of a million trials.

    python -m benchmarks.many_trials [--runs 1000] [--trials 1000] [--folder DIR]

Each run is one segment, as a finished run has after compaction: the events of one real run, made
long, under another run id and with other speeds. The hashes are not made anew, since the query
reads none.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.event_logs import mix, searched, write_long_log
from storage import EventLog, fresh_run_id
from storage.layout import events_prefix, segment_name
from storage.queries import best_per_signature
from storage.segments import encode_table


def write_runs(source: EventLog, root: Path, runs: int, trials: int) -> None:
    """`runs` runs of `trials` trials each; every tenth begins a signature of its own."""
    with tempfile.TemporaryDirectory(dir=root.parent) as folder:
        run_id = write_long_log(source, Path(folder), 2 * trials + 5)
        print(f"each run: {mix(EventLog.open(Path(folder), run_id))}")
        parts = sorted((Path(folder) / events_prefix(run_id)).iterdir())
        table = pa.concat_tables([pq.read_table(part, partitioning=None) for part in parts])
    chooser = np.random.default_rng(0)
    for number in range(runs):
        run_id = fresh_run_id()
        rows = table.num_rows
        factors = pa.array(chooser.uniform(0.9, 1.1, rows))
        changed = {
            "run_id": pa.array([run_id] * rows, pa.string()),
            "tokens_per_s_per_gpu": pc.multiply(table.column("tokens_per_s_per_gpu"), factors),
            "signature_cluster": pc.if_else(
                pc.is_valid(table.column("signature_cluster")), f"{number // 10:016x}", None
            ),
        }
        made = table
        for name, column in changed.items():
            field = table.schema.field(name)
            made = made.set_column(table.schema.get_field_index(name), field, column)
        path = root / events_prefix(run_id) / segment_name(0)
        path.parent.mkdir(parents=True)
        path.write_bytes(encode_table(made))


def main() -> None:
    parser = argparse.ArgumentParser(description="The query over all runs of a large store.")
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--folder", type=Path, default=None)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        root = Path(folder) / "store"
        write_runs(searched(Path(folder)), root, arguments.runs, arguments.trials)
        size_mb = sum(path.stat().st_size for path in root.rglob("*.parquet")) / 1e6
        print(f"{arguments.runs * arguments.trials:,} trials, {size_mb:,.0f} MB")
        for attempt in ("first", "second", "third"):
            start_s, start_cpu_s = time.perf_counter(), time.process_time()
            best = best_per_signature(root)
            cpu_s = time.process_time() - start_cpu_s
            wall_s = time.perf_counter() - start_s
            scores = best["scores"].sum()
            print(
                f"best of {len(best)} signatures, {scores:,} scores, {attempt} call:"
                f" {wall_s:.2f} s, {cpu_s:.2f} s of CPU"
            )


if __name__ == "__main__":
    main()
