"""A bundle: a store that holds one run, the runs it was forked from, and nothing else."""

import os
import shutil
from pathlib import Path

from schemas.errors import DamagedLog, StoreRefused, UserError
from storage.backends import NotStored, SegmentStore
from storage.blobs import blobs_of
from storage.extent import segments_of, survey
from storage.layout import blobs_prefix, compaction_key, events_prefix, head_key, segment_name
from storage.reading import lineage_of, records
from storage.store import Store
from storage.verify import verify

ATTEMPTS = 3
"""How often a run is copied anew because it was compacted meanwhile."""


def write_bundle(store: Store, run_id: str, folder: Path) -> list[str]:
    """Copies `run_id` and the runs above it into a store of their own; returns them, itself first.

    A run that is being written is copied as it stands. Verified before and after; `folder` gets its
    name when all is in it, so that it is whole or not there.

    Raises:
        UserError: `folder` is there and not empty, or is a file.
        DamagedLog: a run does not verify, here or in the copy.
        StoreRefused: the disk refuses.
    """
    _refuse_taken(folder)
    runs = [name for name, _ in lineage_of(store.backend, run_id)]
    _refuse_damaged(store, runs)
    unfinished = folder.with_name(f".{folder.name}.{os.getpid()}")
    copy = Store.at(unfinished)
    try:
        for name in runs:
            _copy_run(store.backend, copy.backend, name)
        _refuse_damaged(copy, runs)
        unfinished.replace(folder)
    except OSError as error:
        raise StoreRefused(f"{folder}: cannot be written: {error.strerror}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return runs


def _refuse_taken(folder: Path) -> None:
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if folder.exists() or folder.is_symlink():
        what = "is not empty" if folder.is_dir() else "is there and no folder"
        raise UserError(f"{folder}: {what}", hint="name a new or empty folder for the bundle")


def _refuse_damaged(store: Store, runs: list[str]) -> None:
    for name in runs:
        report = verify(store, name)
        if report.problem is not None:
            raise DamagedLog(f"no bundle of a damaged run: {report.problem}")


def _copy_run(source: SegmentStore, target: SegmentStore, run_id: str) -> None:
    for key, data in _values(source, run_id).items():
        target.replace(key, data)


def _values(source: SegmentStore, run_id: str) -> dict[str, bytes]:
    """All of a run: key → value. Its writer may go on, and may compact it, meanwhile."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return _read(source, run_id)
        except NotStored:
            if attempt == ATTEMPTS:
                raise
    raise AssertionError("the last attempt returns or raises")


def _read(source: SegmentStore, run_id: str) -> dict[str, bytes]:
    """The anchor first, which is then never ahead of the segments; the mark after them, for
    compaction sets it before it touches any."""
    found = _if_there(source, head_key(run_id))
    for first_seq in segments_of(source, run_id):
        key = f"{events_prefix(run_id)}/{segment_name(first_seq)}"
        found[key] = source.read(key)
    found |= _if_there(source, compaction_key(run_id))
    for record in records(source, survey(source, run_id)):
        if record.envelope.run_id == run_id:
            for digest in blobs_of(record.event):
                key = f"{blobs_prefix(run_id)}/{digest}"
                found[key] = source.read(key)
    return found


def _if_there(source: SegmentStore, key: str) -> dict[str, bytes]:
    try:
        return {key: source.read(key)}
    except NotStored:
        return {}
