"""A single bit that flips in any file of a run is noticed, or changes nothing that is read."""

import random
from pathlib import Path
from typing import Any

import pytest

from storage import Entry, EventLog, list_runs, verify
from storage.layout import TEMPORARY_PREFIX
from tests.storage.builders import RUN, Clock, started, whole_run, write

FLIPS = 250


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A finished run, compacted, with two blobs."""
    with EventLog.create(tmp_path, RUN, clock=Clock()) as log:
        blobs = {name: log.put_blob(name.encode() * 20) for name in ("workload", "cluster")}
        spec = started(workload_blob=blobs["workload"], cluster_blob=blobs["cluster"])
        rest = [entry for batch in whole_run(3)[1:] for entry in batch]
        write(log, [[Entry(spec)], rest])
        log.compact()
    return tmp_path


def reading(root: Path) -> tuple[Any, ...]:
    """All that can be read of the run."""
    log = EventLog.open(root, RUN)
    spec = log.state().spec
    blobs = [log.get_blob(digest) for digest in (spec.workload_blob, spec.cluster_blob)]
    return list(log.iterate()), blobs, list_runs(root)


def test_each_is_noticed_or_changes_nothing_that_is_read(root: Path) -> None:
    whole = reading(root)
    chooser = random.Random(6)
    files = [path for path in root.rglob("*") if path.is_file() and path.stat().st_size]
    assert not any(path.name.startswith(TEMPORARY_PREFIX) for path in files)
    noticed = 0
    for turn in range(FLIPS):
        path = files[turn % len(files)]
        data = path.read_bytes()
        changed = bytearray(data)
        bit = chooser.randrange(8 * len(data))
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        report = verify(root, RUN)
        if report.ok:
            assert reading(root) == whole, f"bit {bit} of {path}"
        else:
            noticed += 1
            assert list_runs(root)[0].status == "damaged" or list_runs(root) == whole[-1]
        path.write_bytes(data)
    assert noticed > FLIPS // 2
    assert reading(root) == whole
