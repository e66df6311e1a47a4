"""A disk that fills up at a given moment of a search: said in one line, and nothing is lost."""

import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.killed_search import Changes
from benchmarks.outcome import artefacts, decided, decided_twice
from storage import EventLog, Store, verify
from tests.end_to_end.files import write_inputs
from tests.end_to_end.processes import exit_code, refold, start

SIZE_MB = 8
PAGE_BYTES = 4096


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}M", "refold-test", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@dataclass(frozen=True)
class Whole:
    """What the search comes to when its disk has room."""

    decided: dict[str, Any]
    artefacts: dict[str, str | None]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = tmp_path_factory.mktemp("whole")
    assert exit_code(start(refold, tune(folder, folder), folder)) == 0
    return Whole(decided(log_on(folder)), artefacts(folder / "out"))


def places(disk: Path) -> tuple[object, ...]:
    return ("--store", disk / "store", "--out-dir", disk / "out", "--no-prefect")


def tune(folder: Path, disk: Path) -> tuple[object, ...]:
    workload, cluster = write_inputs(folder)
    files = ("--workload", workload, "--target-cluster", cluster, "--seed-only")
    limits = ("--mode", "dry", "--gemm-backend", "tile", "--seed-budget", 5)
    return ("tune", *files, *limits, *places(disk))


def log_on(disk: Path) -> EventLog:
    (run_id,) = Store.at(disk / "store").run_ids()
    return EventLog.open(disk / "store", run_id)


def fill(disk: Path, spare_bytes: int = 0) -> None:
    """Leaves `spare_bytes` of the disk free."""
    descriptor = os.open(disk / "ballast", os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(descriptor, bytes(PAGE_BYTES))
    except OSError:
        os.truncate(descriptor, os.fstat(descriptor).st_size - spare_bytes)
    finally:
        os.close(descriptor)


def refold_while_it_fills(
    arguments: tuple[object, ...], folder: Path, disk: Path, place: str, after: int, spare: int
) -> None:
    """`refold`, on a disk that is full from the `after`-th change of a file in `place` on."""
    met = 0

    def tell(_: str, path: str) -> None:
        nonlocal met
        met += place in path
        if place in path and met == after:
            fill(disk, spare)

    sys.addaudithook(Changes((str(disk / "store"), str(disk / "out")), tell))
    refold(arguments, folder)


MOMENTS = {
    "before it starts": ("/out", 1, 0),
    "when it takes its lease": ("/leases/", 1, 0),
    "while it keeps its files": ("/blobs/", 4, 0),
    "at its first event": ("/events/", 2, 0),
    "in the middle of an append": ("/events/", 14, PAGE_BYTES),
    "while it keeps an evaluation": ("/evaluations/", 6, 0),
    "while it anchors its head": ("/heads/", 2, 0),
    "while it exports": ("/out/.trials.jsonl", 1, PAGE_BYTES),
    "at the last of its artefacts": ("/out/.trials.png", 1, 0),
}


@pytest.mark.slow
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_disk_that_fills_up_is_said_and_costs_nothing(
    moment: str, disk: Path, tmp_path: Path, whole: Whole
):
    arguments = (tune(tmp_path, disk), tmp_path, disk, *MOMENTS[moment])
    said = ends_with_3(refold_while_it_fills, arguments, tmp_path)
    assert re.search(rf"^refold: {disk}/\S+: cannot be \w+: No space left on device", said, re.M)
    runs = Store.at(disk / "store").run_ids()
    before = []
    if runs:
        assert verify(disk / "store", runs[0]).problem is None
        before = log_on(disk).read()
    (disk / "ballast").unlink()
    again = ("resume", "latest", *places(disk)) if runs else tune(tmp_path, disk)
    assert exit_code(start(refold, again, tmp_path)) == 0, (tmp_path / "said").read_text()
    records = list(log_on(disk).iterate())
    assert [record.envelope for record in records][: len(before)] == before
    assert decided_twice(records) == 0
    assert decided(log_on(disk)) == whole.decided
    assert artefacts(disk / "out") == whole.artefacts


def refold_with_small_files(arguments: tuple[object, ...], folder: Path, bytes_each: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_each, bytes_each))
    refold(arguments, folder)


@pytest.mark.parametrize(
    ("verb", "bytes_each"), [("tune", 9000), ("export", 20_000)], ids=["append", "export"]
)
def test_a_limit_on_the_size_of_files_is_said_alike(
    verb: str, bytes_each: int, tmp_path: Path, whole: Whole
):
    arguments = tune(tmp_path, tmp_path)
    if verb == "export":
        assert exit_code(start(refold, arguments, tmp_path)) == 0
        arguments = ("export", "latest", "--store", tmp_path / "store", "--out-dir", tmp_path / "e")
    limited = (arguments, tmp_path, bytes_each)
    said = ends_with_3(refold_with_small_files, limited, tmp_path)
    assert re.search(rf"^refold: {tmp_path}/\S+: cannot be written: File too large", said, re.M)


def ends_with_3(target: Callable[..., None], arguments: tuple[Any, ...], folder: Path) -> str:
    """What a process says that the environment refuses: one line, and perhaps what to do."""
    assert exit_code(start(target, *arguments)) == 3, (folder / "said").read_text()
    said = (folder / "said").read_text()
    assert "Traceback" not in said
    assert len(re.findall("^refold: ", said, re.M)) == 1
    return said
