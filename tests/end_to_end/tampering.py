"""Ways to change a run behind its back, done to its Parquet files as any tool could."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Rows = list[dict[str, Any]]


def rewrite(path: Path, change: Callable[[Rows], Rows]) -> None:
    """`path` with its rows changed; the file itself is in order."""
    table = pq.read_table(path, partitioning=None)
    pq.write_table(
        pa.Table.from_pylist(change(table.to_pylist()), schema=table.schema),
        path,
        compression="zstd",
        write_page_checksum=True,
    )


def edit_value(path: Path) -> None:
    def change(rows: Rows) -> Rows:
        payload = json.loads(rows[0]["payload"])
        name, value = next((k, v) for k, v in payload.items() if isinstance(v, str) and k != "type")
        text = json.dumps({**payload, name: value + "x"}, sort_keys=True, separators=(",", ":"))
        return [{**rows[0], "payload": text}, *rows[1:]]

    rewrite(path, change)


def edit_column(path: Path) -> None:
    rewrite(path, lambda rows: [{**rows[0], "tokens_per_s_per_gpu": 9999.0}, *rows[1:]])


def edit_time(path: Path) -> None:
    rewrite(path, lambda rows: [{**rows[0], "at": rows[0]["at"].replace(year=2020)}, *rows[1:]])


def drop_event(path: Path) -> None:
    rewrite(path, lambda rows: rows[1:])


def drop_segment(path: Path) -> None:
    path.unlink()


def swap_events(path: Path) -> None:
    rewrite(path, lambda rows: [rows[1], rows[0], *rows[2:]])


def duplicate_event(path: Path) -> None:
    rewrite(path, lambda rows: [rows[0], *rows])


def append_foreign_event(path: Path) -> None:
    rewrite(path, lambda rows: [*rows, {**rows[-1], "run_id": "another", "seq": 999}])


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-8])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def replace_by_text(path: Path) -> None:
    path.write_text("not a segment")


OF_A_SEGMENT: dict[Callable[[Path], None], int] = {
    edit_value: 0,
    edit_column: 0,
    edit_time: 0,
    drop_event: 0,
    drop_segment: 0,
    swap_events: 0,
    duplicate_event: 1,
    append_foreign_event: 3,
    truncate: 0,
    empty: 0,
    replace_by_text: 0,
}
"""What each makes the first bad event of a segment of three, counted from the segment's first."""


def files_of(folder: Path) -> Iterator[tuple[Path, bytes]]:
    """Every file below `folder`, with what it holds."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield path, path.read_bytes()
