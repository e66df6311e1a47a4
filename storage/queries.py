"""Questions about all runs of a store at once, answered from the hot columns alone.

The store is read as what it is, a hive-partitioned Parquet dataset: nothing is looked up per run
and no payload is read. Nothing is verified either; that is for `storage.verify`.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from schemas.errors import DamagedLog, UserError
from storage.backends.local import LocalDisk
from storage.layout import RUNS, events_prefix, first_seq_of, run_of_folder
from storage.segments import ForeignSegment, TornSegment, decode, segment_schema
from storage.store import Store, as_store

if TYPE_CHECKING:
    import polars as pl

SIGNATURE = ("signature_model", "signature_cluster", "signature_stack")
BEST = (
    "run_id",
    "seq",
    "trial",
    "trial_id",
    "tokens_per_s_per_gpu",
    "memory_per_gpu_gb",
    "iteration_ms",
    "source",
    "provenance",
)
"""What is told of the best trial, in the units of `storage.columns.HotColumns`."""


def best_per_signature(store: Store | Path) -> "pl.DataFrame":
    """The best trial ever scored for each signature, in any run of a store.

    One row per signature, ordered by it: its three hashes (`SIGNATURE`), `scores`, the number of
    those that may win (legal, fitting, timed, and not found wrong in their run), and the columns
    `BEST` of the best of them; of equal ones, of the first in the oldest run.

    A score counts once, for the run that recorded it: a fork holds only what came after the fork.
    One that a fork found wrong therefore still stands here, and so does a mode or memory regime
    beside another: this is a query for people. `storage.recipes` is what a search asks.

    Raises:
        DamagedLog: a segment is empty or not one; the message names it.
        UserError: the store is not a local folder.
    """
    import polars as pl

    events, speed = scan_events(store), pl.col("tokens_per_s_per_gpu")
    scored = events.filter(pl.col("type") == "TrialScored", pl.col("legal"), pl.col("fits"))
    found_wrong = events.filter(pl.col("type") == "TrialInvalidated")
    try:
        scores, wrong = pl.collect_all(
            [
                scored.filter(speed.is_not_null()).select(*SIGNATURE, *BEST),
                found_wrong.select("run_id", "trial"),
            ]
        )
    except pl.exceptions.PolarsError as error:
        raise _damage(_folder_of(store), error) from error
    return (
        scores.join(wrong, on=["run_id", "trial"], how="anti")
        # Until a killed compaction is finished, an event may lie in two segments.
        .unique(["run_id", "seq"])
        .with_columns(pl.len().over(SIGNATURE).alias("scores"))
        .filter(speed == speed.max().over(SIGNATURE))
        .sort("run_id", "seq")
        .unique(SIGNATURE, keep="first", maintain_order=True)
        .sort(SIGNATURE)
        .select(*SIGNATURE, "scores", *BEST)
    )


def scan_events(store: Store | Path) -> "pl.LazyFrame":
    """Every event of every run in a store, lazily: the columns of a segment, null where an older
    Refold wrote none.

    Raises:
        DamagedLog: a segment is empty; polars itself would pass it over.
        UserError: the store is not a local folder.
    """
    import polars as pl

    root = _folder_of(store)
    columns = pl.DataFrame(segment_schema().empty_table()).schema
    paths = [path for _, path in _segments(root)]
    if not paths:
        return pl.LazyFrame(schema=columns)
    return pl.scan_parquet(
        paths,
        schema=columns,
        missing_columns="insert",
        extra_columns="ignore",
        hive_partitioning=False,  # the run is a column as well, and one type fewer to guess
        glob=False,
    )


def _folder_of(store: Store | Path) -> Path:
    backend = as_store(store).backend
    if not isinstance(backend, LocalDisk):
        raise UserError("a query over all runs needs a store in a local folder")
    return backend.root


def _damage(root: Path, error: Exception) -> DamagedLog:
    """What made polars fail, by the run and the segment that it does not name."""
    for run_id, path in _segments(root):
        try:
            decode(path.read_bytes())
        except (TornSegment, ForeignSegment) as reason:
            return _bad_segment(run_id, path.name, f"cannot be read ({reason})")
    return DamagedLog(f"the store {root} cannot be queried: {error}")


def _bad_segment(run_id: str, name: str, what: str) -> DamagedLog:
    return DamagedLog(
        f"run {run_id}: segment {name} {what}",
        hint=f"`refold verify {run_id}` says whether an event is lost",
    )


def _segments(root: Path) -> Iterator[tuple[str, Path]]:
    """Every segment of every run, with the run's id."""
    if not (root / RUNS).is_dir():
        return
    with os.scandir(root / RUNS) as folders:
        run_ids = sorted(run_id for f in folders if (run_id := run_of_folder(f.name)) is not None)
    for run_id in run_ids:
        events = root / events_prefix(run_id)
        if not events.is_dir():
            continue
        with os.scandir(events) as entries:
            files = [file for file in entries if first_seq_of(file.name) is not None]
        for file in files:
            if file.stat().st_size == 0:
                raise _bad_segment(run_id, file.name, "is empty")
            yield run_id, Path(file.path)
