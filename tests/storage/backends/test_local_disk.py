"""What every backend promises (B1 to B4), on a local disk."""

import os
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from schemas.errors import EnvironmentMissing, LogError, StoreRefused
from storage.backends import AlreadyStored, NotStored
from storage.backends.local import LocalDisk
from storage.backends.process import this_process


@pytest.fixture
def disk(tmp_path: Path) -> LocalDisk:
    return LocalDisk(tmp_path / "store")


def test_b1_a_created_value_reads_back(disk: LocalDisk) -> None:
    disk.create("a/b/value", b"bytes")
    assert disk.read("a/b/value") == b"bytes"
    assert disk.names("a/b") == ["value"]
    assert disk.folders("a") == ["b"]
    assert disk.leftovers("a/b") == []


def test_b2_a_taken_key_is_refused_and_keeps_its_value(disk: LocalDisk) -> None:
    disk.create("a/value", b"first")
    with pytest.raises(AlreadyStored):
        disk.create("a/value", b"second")
    assert disk.read("a/value") == b"first"
    assert disk.leftovers("a") == []


def test_b2_of_many_writers_one_wins(disk: LocalDisk) -> None:
    won: list[int] = []
    barrier = threading.Barrier(8)

    def create(number: int) -> None:
        barrier.wait()
        try:
            disk.create("a/value", str(number).encode())
        except AlreadyStored:
            return
        won.append(number)

    threads = [threading.Thread(target=create, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert disk.read("a/value") == str(won[0]).encode()


def test_a_value_is_replaced_whole(disk: LocalDisk) -> None:
    disk.replace("a/value", b"first")
    disk.replace("a/value", b"second")
    assert disk.read("a/value") == b"second"
    assert disk.leftovers("a") == []


def test_a_value_moves(disk: LocalDisk) -> None:
    disk.create("a/value", b"bytes")
    disk.move("a/value", "b/moved")
    assert disk.names("a") == []
    assert disk.read("b/moved") == b"bytes"
    with pytest.raises(NotStored):
        disk.move("a/value", "b/again")


def test_what_is_not_there_is_not_stored(disk: LocalDisk) -> None:
    assert disk.names("nowhere") == []
    assert disk.folders("nowhere") == []
    with pytest.raises(NotStored):
        disk.read("nowhere/value")


def test_b4_leftovers_are_listed_apart_from_values(disk: LocalDisk) -> None:
    disk.create("a/value", b"bytes")
    (disk.root / "a" / ".tmp-value-1").write_bytes(b"by")
    assert disk.names("a") == ["value"]
    assert disk.leftovers("a") == [".tmp-value-1"]


def test_a_file_system_without_hard_links_is_named(
    disk: LocalDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(LogError, match="no hard links") as caught:
        disk.create("a/value", b"bytes")
    assert caught.value.hint is not None
    assert disk.leftovers("a") == []


def test_a_disk_that_refuses_is_the_environment_and_not_the_log(tmp_path: Path) -> None:
    """A folder that is a file refuses everybody, the superuser of a container included."""
    (tmp_path / "a").touch()
    disk = LocalDisk(tmp_path)
    for attempt in (
        lambda: disk.create("a/value", b"bytes"),
        lambda: disk.replace("a/value", b"bytes"),
        lambda: disk.acquire("a/lease", this_process(datetime(2026, 1, 2, tzinfo=UTC))),
    ):
        with pytest.raises(StoreRefused) as caught:
            attempt()
        assert caught.value.exit_code == EnvironmentMissing.exit_code


def test_a_flush_that_fails_is_not_success(tmp_path: Path) -> None:
    def fails(descriptor: int) -> None:
        if os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(5, "Input/output error")

    disk = LocalDisk(tmp_path, fsync=fails)
    with pytest.raises(LogError, match="cannot be flushed: Input/output error"):
        disk.create("value", b"bytes")
