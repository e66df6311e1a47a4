"""Segments: a batch of events as one Parquet file, page checksums written and verified.

Parquet because polars, DuckDB, Arrow and Spark read it as it is, and because with page checksums it
reports nearly every flipped bit; the hash chain catches the rest.
"""

import io
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from schemas.events import Envelope
from storage.columns import HotColumns

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Row(NamedTuple):
    """One event as stored: its envelope, and the hot columns that stand beside it."""

    envelope: Envelope
    hot: HotColumns


class TornSegment(Exception):
    """The bytes are not a whole Parquet file: truncated, empty, or a page fails its checksum."""


class ForeignSegment(Exception):
    """A whole Parquet file, but not one of ours."""


def encode(rows: Sequence[Row]) -> bytes:
    """The segment that holds `rows`, at least one."""
    columns: dict[str, list[Any]] = {name: [] for name in segment_schema().names}
    for envelope, hot in rows:
        for name in Envelope.model_fields:
            columns[name].append(getattr(envelope, name))
        for name, value in zip(HotColumns._fields, hot, strict=True):
            columns[name].append(value)
    sink = io.BytesIO()
    pq.write_table(
        pa.table(columns, schema=segment_schema()),
        sink,
        compression="zstd",
        write_page_checksum=True,
    )
    return sink.getvalue()


def decode(data: bytes) -> list[Row]:
    """The rows of a segment.

    Raises:
        TornSegment: `data` is not a whole Parquet file.
        ForeignSegment: its columns are not a segment's, it holds no event, or memory is short.
    """
    try:
        with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
            # Threads of its own would outlive the last line of a short command, and abort it.
            table = file.read(use_threads=False)
    except MemoryError as error:
        # A flipped size asks for absurd amounts; but memory may really be short, and a tail must
        # not be set aside for that.
        raise ForeignSegment(f"it cannot be decoded in memory: {error}") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise TornSegment(f"{len(data)} bytes, {reason}") from error
    if table.schema.remove_metadata() != segment_schema():
        raise ForeignSegment("its columns are not those of a segment")
    if table.num_rows == 0:
        raise ForeignSegment("it holds no event")
    return _rows(table)


def _rows(table: pa.Table) -> list[Row]:
    plain = table.set_column(
        table.schema.get_field_index("at"), "at", table.column("at").cast(pa.int64())
    )
    envelope_names = tuple(Envelope.model_fields)
    try:
        columns = {name: plain.column(name).to_pylist() for name in plain.column_names}
        columns["at"] = [_EPOCH + timedelta(microseconds=us) for us in columns["at"]]
        envelopes = [
            Envelope(**dict(zip(envelope_names, values, strict=True)))
            for values in zip(*(columns[name] for name in envelope_names), strict=True)
        ]
    except (ValidationError, ValueError, TypeError, OverflowError) as error:
        raise ForeignSegment("a row is not an event") from error
    hots = map(HotColumns._make, zip(*(columns[n] for n in HotColumns._fields), strict=True))
    return [Row(envelope, hot) for envelope, hot in zip(envelopes, hots, strict=True)]


@cache
def segment_schema() -> pa.Schema:
    """Columns and types of a segment: the envelope, then the hot columns."""
    return pa.schema(
        [
            pa.field("run_id", pa.string(), nullable=False),
            pa.field("seq", pa.int64(), nullable=False),
            pa.field("type", pa.string(), nullable=False),
            pa.field("schema_version", pa.int16(), nullable=False),
            pa.field("round", pa.int32()),
            pa.field("trial", pa.int32()),
            pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
            pa.field("prev_hash", pa.string(), nullable=False),
            pa.field("hash", pa.string(), nullable=False),
            pa.field("payload", pa.string(), nullable=False),
            pa.field("trial_id", pa.string()),
            pa.field("legal", pa.bool_()),
            pa.field("fits", pa.bool_()),
            pa.field("tokens_per_s_per_gpu", pa.float64()),
            pa.field("memory_per_gpu_gb", pa.float64()),
            pa.field("iteration_ms", pa.float64()),
            pa.field("source", pa.string()),
            pa.field("provenance", pa.string()),
            pa.field("signature_model", pa.string()),
            pa.field("signature_cluster", pa.string()),
            pa.field("signature_stack", pa.string()),
        ]
    )
