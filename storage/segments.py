"""Segments: a batch of events as one Parquet file, page checksums written and verified.

Parquet because polars, DuckDB, Arrow and Spark read it as it is, and because with page checksums it
reports nearly every flipped bit; the hash chain catches the rest.
"""

import io
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from schemas.events import Envelope
from storage.columns import HotColumns

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ROWS_PER_GROUP = 1000
"""A compacted run is one segment: groups let several processes verify it, each a part."""
_REPEATED = [
    "run_id", "type", "schema_version", "round", "at", "source", "provenance",
    "signature_model", "signature_cluster", "signature_stack",
]  # fmt: skip
"""Columns that are the same in many rows; the others, payloads first, only lose by a dictionary."""


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
    envelopes, hots = zip(*rows, strict=True)
    columns = (*zip(*envelopes, strict=True), *zip(*hots, strict=True))
    schema = segment_schema()
    arrays = [pa.array(values, f.type) for f, values in zip(schema, columns, strict=True)]
    return encode_table(pa.Table.from_arrays(arrays, schema=schema))


def encode_table(table: pa.Table) -> bytes:
    """The segment that holds the rows of `table`, which has `segment_schema()`."""
    sink = io.BytesIO()
    pq.write_table(
        table,
        sink,
        row_group_size=ROWS_PER_GROUP,
        compression="zstd",
        use_dictionary=_REPEATED,
        write_page_checksum=True,
    )
    return sink.getvalue()


def decode(data: bytes, *, groups: slice = slice(None), payloads: bool = True) -> list[Row]:
    """The rows of a segment.

    Args:
        data: the segment.
        groups: which of its row groups.
        payloads: False leaves them out, and "" in their place.

    Raises:
        TornSegment: `data` is not a whole Parquet file.
        ForeignSegment: its columns are not a segment's, it holds no event, or memory is short.
    """
    wanted = [n for n in segment_schema().names if payloads or n != "payload"]
    try:
        with pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True) as file:
            if file.schema_arrow.remove_metadata() != segment_schema():
                raise ForeignSegment("its columns are not those of a segment")
            if file.metadata.num_rows == 0:
                raise ForeignSegment("it holds no event")
            # Threads of its own would outlive the last line of a short command, and abort it.
            table = file.read_row_groups(
                range(file.num_row_groups)[groups], wanted, use_threads=False
            )
    except MemoryError as error:
        # A flipped size asks for absurd amounts; but memory may really be short, and a tail must
        # not be set aside for that.
        raise ForeignSegment(f"it cannot be decoded in memory: {error}") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        raise TornSegment(f"{len(data)} bytes, {reason}") from error
    if not payloads:
        table = table.append_column("payload", pa.array([""] * table.num_rows, pa.string()))
    return _rows(table)


def _rows(table: pa.Table) -> list[Row]:
    if any(table.column(field.name).null_count for field in segment_schema() if not field.nullable):
        raise ForeignSegment("a row is not an event")
    plain = table.set_column(
        table.schema.get_field_index("at"), "at", table.column("at").cast(pa.int64())
    )
    try:
        columns = {name: plain.column(name).to_pylist() for name in plain.column_names}
        # Events of one batch have one time.
        times = {us: _EPOCH + timedelta(microseconds=us) for us in set(columns["at"])}
    except (ValueError, OverflowError) as error:
        raise ForeignSegment("a row is not an event") from error
    columns["at"] = [times[us] for us in columns["at"]]
    envelopes = map(Envelope._make, zip(*map(columns.get, Envelope._fields), strict=True))
    hots = map(HotColumns._make, zip(*map(columns.get, HotColumns._fields), strict=True))
    return list(map(Row, envelopes, hots))


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
