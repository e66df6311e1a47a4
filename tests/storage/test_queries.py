from pathlib import Path

import pytest

from schemas.errors import DamagedLog
from schemas.evaluation import SignatureHashes
from storage import Entry, EventLog
from storage.queries import BEST, SIGNATURE, best_per_signature, scan_events
from storage.segments import segment_schema
from tests.storage.builders import (
    Clock,
    proposed,
    rejected,
    round_started,
    scored,
    started,
    whole_run,
    write,
)

OLD, NEW, NEWEST = (f"2026030{day}t000000-000000-aaaaaaaa" for day in (4, 5, 6))
OTHER = SignatureHashes(model="1" * 16, cluster="9" * 16, stack="3" * 16)


def run_of(root: Path, run_id: str, *verdicts: Entry) -> None:
    """A run that proposed trials 0, 1, … and decided them so."""
    proposals = [Entry(proposed(number), 0, number) for number in range(len(verdicts))]
    with EventLog.create(root, run_id, clock=Clock()) as log:
        write(log, [[Entry(started())], [Entry(round_started(len(verdicts)), 0)]])
        write(log, [proposals, list(verdicts)])


def score(number: int, tokens_per_s_per_gpu: float | None, **changes: object) -> Entry:
    event = scored(number, tokens_per_s_per_gpu=tokens_per_s_per_gpu, **changes)
    return Entry(event, 0, number)


def test_the_best_of_each_signature_over_all_runs(tmp_path: Path) -> None:
    run_of(tmp_path, OLD, score(0, 10.0), score(1, 30.0), score(2, 90.0, signature=OTHER))
    run_of(tmp_path, NEW, score(0, 20.0), score(1, 80.0, signature=OTHER))
    best = best_per_signature(tmp_path)
    assert best.columns == [*SIGNATURE, "scores", *BEST]
    assert best.select("signature_cluster", "scores", "run_id", "trial").rows() == [
        ("2" * 16, 3, OLD, 1),
        ("9" * 16, 2, OLD, 2),
    ]
    assert best["tokens_per_s_per_gpu"].to_list() == [30.0, 90.0]
    assert best["trial_id"].to_list() == [scored(1).trial_id, scored(2).trial_id]


def test_only_what_may_win_counts(tmp_path: Path) -> None:
    run_of(
        tmp_path,
        OLD,
        score(0, 99.0, fits=False),
        score(1, 5.0),
        Entry(rejected(2), 0, 2),
        score(3, None),
        score(4, 98.0, legal=False),
    )
    assert best_per_signature(tmp_path).select("scores", "trial").rows() == [(1, 1)]


def test_of_equal_scores_the_first_of_the_oldest_run_is_told(tmp_path: Path) -> None:
    run_of(tmp_path, NEW, score(0, 7.0))
    run_of(tmp_path, OLD, score(0, 6.0), score(1, 7.0), score(2, 7.0))
    assert best_per_signature(tmp_path).select("scores", "run_id", "trial").rows() == [(4, OLD, 1)]


def test_a_store_without_runs_has_no_best(tmp_path: Path) -> None:
    assert best_per_signature(tmp_path / "nowhere").columns == [*SIGNATURE, "scores", *BEST]
    run_of(tmp_path, OLD)
    assert best_per_signature(tmp_path).is_empty()


def test_what_lies_beside_the_segments_is_not_read(tmp_path: Path) -> None:
    run_of(tmp_path, OLD, score(0, 7.0))
    events = tmp_path / "runs" / f"run_id={OLD}" / "events"
    (events / ".tmp-000000000009.parquet-1").write_bytes(b"")
    (tmp_path / "runs" / "notes").mkdir()
    (tmp_path / "runs" / f"run_id={NEW}").mkdir()
    assert best_per_signature(tmp_path)["scores"].to_list() == [1]


@pytest.mark.parametrize("left", [0, 100], ids=["empty", "torn"])
def test_a_segment_that_is_not_whole_is_named_not_passed_over(tmp_path: Path, left: int) -> None:
    run_of(tmp_path, OLD, score(0, 7.0))
    run_of(tmp_path, NEW, score(0, 8.0))
    path = tmp_path / "runs" / f"run_id={NEW}" / "events" / "000000000003.parquet"
    path.write_bytes(path.read_bytes()[:left])
    with pytest.raises(DamagedLog, match=NEW):
        best_per_signature(tmp_path)


def test_the_scan_has_every_event_and_the_columns_of_a_segment(tmp_path: Path) -> None:
    for run_id in (OLD, NEW, NEWEST):
        with EventLog.create(tmp_path, run_id, clock=Clock()) as log:
            write(log, whole_run(3))
    events = scan_events(tmp_path).collect()
    assert events.columns == segment_schema().names
    assert events["run_id"].value_counts().sort("run_id")["count"].to_list() == [12, 12, 12]


def test_columns_an_older_segment_lacks_are_null(tmp_path: Path) -> None:
    import polars as pl

    run_of(tmp_path, OLD, score(0, 7.0))
    path = tmp_path / "runs" / f"run_id={OLD}" / "events" / "000000000003.parquet"
    pl.read_parquet(path, hive_partitioning=False).drop("provenance").write_parquet(path)
    run_of(tmp_path, NEW, score(0, 6.0))
    assert best_per_signature(tmp_path).select("scores", "run_id", "provenance").rows() == [
        (2, OLD, None)
    ]
