"""A bundle stands on its own, and whatever is changed in it afterwards is named."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from schemas.errors import DamagedLog, UserError
from schemas.events import RunResumed
from storage import Entry, EventLog, Store, list_runs, verify
from storage.backends.local import LocalDisk
from storage.bundle import write_bundle
from storage.layout import events_prefix, head_key
from storage.segments import ForeignSegment, TornSegment, decode
from storage.state import State
from tests.storage.builders import proposed, round_started, scored, write
from tests.storage.forked_runs import (
    CHILD,
    OTHER,
    PARENT,
    child_run,
    forked,
    other_run,
    parent_run,
)

RESUMED = RunResumed(refold_version="1", projection_version="1", reopened=True)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A run, a fork of it, both compacted, and an unrelated run."""
    root = tmp_path / "store"
    parent_run(root)
    child_run(root)
    other_run(root)
    for run in (PARENT, CHILD):
        with EventLog.open(root, run, writing=True) as log:
            log.compact()
    return Store.at(root)


def files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def test_it_holds_the_run_and_those_above_and_nothing_else(store: Store, tmp_path: Path):
    assert write_bundle(store, CHILD, tmp_path / "bundle") == [CHILD, PARENT]
    names = {str(path.relative_to(tmp_path / "bundle")) for path in files(tmp_path / "bundle")}
    there = {str(path.relative_to(store.root)) for path in files(store.root)}
    assert names == {n for n in there if OTHER not in n and not n.startswith("leases/")}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_it_verifies_and_folds_alike_when_the_original_is_gone(store: Store, tmp_path: Path):
    before: dict[str, State] = {run: EventLog.open(store, run).state() for run in (CHILD, PARENT)}
    listed = list_runs(store)
    write_bundle(store, CHILD, tmp_path / "bundle")
    shutil.rmtree(store.root)
    bundle = Store.at(tmp_path / "bundle")
    for run, state in before.items():
        assert verify(bundle, run).ok
        assert EventLog.open(bundle, run).state() == state
    assert list_runs(bundle) == [run for run in listed if run.run_id != OTHER]


def what_it_says(path: Path) -> object:
    """What a reader has from a file; None: nothing."""
    data = path.read_bytes()
    if path.suffix == ".json":
        try:
            return json.loads(data)
        except ValueError:
            return None
    if path.suffix != ".parquet":
        return data
    try:
        return decode(data)
    except (TornSegment, ForeignSegment):
        return None


def changes(data: bytes) -> Iterator[bytes]:
    """Other contents that a file may be given."""
    yield from (b"", data[:-1], b"\x00" * len(data))
    for at in range(len(data) // 7, len(data), max(1, len(data) // 4)):
        yield data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_every_file_that_says_something_else_is_named(store: Store, tmp_path: Path):
    root = tmp_path / "bundle"
    runs = write_bundle(store, CHILD, root)
    for path in files(root):
        whole, said = path.read_bytes(), what_it_says(path)
        for data in changes(whole):
            path.write_bytes(data)
            if what_it_says(path) != said:
                assert any(is_named(root, run) for run in runs), path
        path.unlink()
        if path.name != "compacted.json":  # a tombstone: the events are all there without it
            assert any(is_named(root, run) for run in runs), path
        path.write_bytes(whole)


def is_named(root: Path, run: str) -> bool:
    report = verify(root, run)
    return report.problem is not None or report.warnings != ()


def test_a_folder_that_is_not_empty_is_refused_and_left_alone(store: Store, tmp_path: Path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("taken", "file"):
        with pytest.raises(UserError, match=name):
            write_bundle(store, CHILD, tmp_path / name)
    assert [path.name for path in (tmp_path / "taken").iterdir()] == ["mine"]
    (tmp_path / "empty").mkdir()
    write_bundle(store, CHILD, tmp_path / "empty")
    assert verify(tmp_path / "empty", CHILD).ok


def test_nothing_is_bundled_of_a_damaged_run(store: Store, tmp_path: Path):
    (segment,) = sorted((store.root / events_prefix(PARENT)).iterdir())
    segment.write_bytes(segment.read_bytes()[:-5])
    with pytest.raises(DamagedLog, match=PARENT):
        write_bundle(store, CHILD, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


class Busy(LocalDisk):
    """A disk on which something happens once, right after a value was read."""

    def __init__(self, root: Path, after: str, what: Callable[[], None]) -> None:
        super().__init__(root)
        self.after, self.what = after, what
        self.armed = False

    def read(self, key: str) -> bytes:
        data = super().read(key)
        if self.armed and key.startswith(self.after):
            self.armed = False
            self.what()
        return data


@pytest.mark.parametrize("after", [head_key(PARENT), events_prefix(PARENT)])
@pytest.mark.parametrize("compacts", [False, True])
def test_a_parent_that_is_being_written_is_copied_as_it_stands(
    after: str, compacts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    root = tmp_path / "store"
    parent_run(root)
    last = EventLog.open(root, PARENT).state().head_seq
    with forked(root, CHILD, PARENT, last - 2, inherits=True) as log:
        log.anchor_head()
    with EventLog.open(root, PARENT, writing=True) as writer:

        def go_on() -> None:
            if compacts:
                writer.compact()
            else:
                write(writer, [[Entry(RESUMED)], [Entry(round_started(1), 2)]])
                write(writer, [[Entry(proposed(7), 2, 7), Entry(scored(7), 2, 7)]])
                writer.anchor_head()

        disk = Busy(root, after, go_on)
        store = Store(root, disk)

        def armed(store: Store, runs: list[str]) -> None:
            disk.armed = not disk.armed and store.root == root

        monkeypatch.setattr("storage.bundle._refuse_damaged", armed)
        write_bundle(store, CHILD, tmp_path / "bundle")
    assert not disk.armed
    for run in (CHILD, PARENT):
        assert verify(tmp_path / "bundle", run).problem is None
