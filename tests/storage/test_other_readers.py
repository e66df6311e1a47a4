"""The store is a hive-partitioned Parquet dataset: others read it as it is."""

import os
from pathlib import Path

import duckdb
import polars as pl
import pyarrow.dataset as ds
import pytest

from storage import EventLog, Store
from storage.segments import segment_schema
from tests.s3_server import S3Server
from tests.storage.builders import RUN, Clock, whole_run, write

LATER = "20260305t000000-000000-bbbbbbbb"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for run_id, trials in ((RUN, 4), (LATER, 6)):
        with EventLog.create(tmp_path, run_id, clock=Clock()) as log:
            write(log, whole_run(trials))
    return tmp_path


def test_polars_finds_the_best_trial_of_each_run_without_json(store: Path) -> None:
    events = pl.scan_parquet(f"{store}/runs/*/events/*.parquet", hive_partitioning=True)
    best = (
        events.filter(pl.col("type") == "TrialScored", pl.col("legal"), pl.col("fits"))
        .sort("tokens_per_s_per_gpu", descending=True)
        .group_by("run_id")
        .first()
        .sort("run_id")
        .collect()
    )
    assert best["run_id"].to_list() == [RUN, LATER]
    assert best["trial"].to_list() == [3, 4]
    assert best["tokens_per_s_per_gpu"].to_list() == [3003.0, 3004.0]
    assert best["signature_stack"].to_list() == ["3" * 16] * 2


def test_polars_prunes_by_the_partition(store: Path) -> None:
    events = pl.scan_parquet(f"{store}/runs/*/events/*.parquet", hive_partitioning=True)
    seqs = events.filter(pl.col("run_id") == LATER).sort("seq").collect()["seq"].to_list()
    assert seqs == list(range(len(EventLog.open(store, LATER).read())))


def test_polars_decodes_the_payload(store: Path) -> None:
    wanted = pl.Struct({"evaluation": pl.Struct({"iteration_ms": pl.Float64})})
    decoded = (
        pl.scan_parquet(f"{store}/runs/*/events/*.parquet")
        .filter(pl.col("type") == "TrialScored")
        .select(
            pl.col("payload").str.json_decode(wanted).struct.field("evaluation").struct.unnest(),
            stored=pl.col("iteration_ms"),
        )
        .collect()
    )
    assert decoded["iteration_ms"].to_list() == decoded["stored"].to_list() == [5123.4] * 7


def test_arrow_sees_the_documented_columns(store: Path) -> None:
    dataset = ds.dataset(store / "runs", format="parquet", partitioning="hive", schema=None)
    there = {field.name: field.type for field in dataset.schema}
    assert there == {field.name: field.type for field in segment_schema()}
    assert segment_schema().field("at").type.tz == "UTC"


def test_duckdb_reads_it(store: Path) -> None:
    query = f"""
        select run_id, count(*) filter (type = 'TrialScored'), max(tokens_per_s_per_gpu)
        from read_parquet('{store}/runs/*/events/*.parquet', hive_partitioning = true)
        group by run_id order by run_id
    """
    assert duckdb.sql(query).fetchall() == [(RUN, 3, 3003.0), (LATER, 4, 3004.0)]


def test_polars_reads_a_bucket_by_the_same_pattern(s3: S3Server, s3_store: str) -> None:
    store = Store.locate(s3_store, os.environ)
    for run_id, trials in ((RUN, 4), (LATER, 6)):
        with EventLog.create(store, run_id, clock=Clock()) as log:
            write(log, whole_run(trials))
    events = pl.scan_parquet(
        f"{s3_store}/runs/*/events/*.parquet",
        hive_partitioning=True,
        storage_options={"aws_endpoint_url": s3.url, "aws_allow_http": "true"},
    )
    scored = events.filter(pl.col("type") == "TrialScored").group_by("run_id").len().collect()
    assert sorted(scored.rows()) == [(RUN, 3), (LATER, 4)]
