"""What only a local disk can do wrong; what every backend promises is in `conformance.py`."""

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from schemas.errors import EnvironmentMissing, LogError, StoreRefused
from storage.backends.local import LocalDisk
from storage.backends.process import this_process


@pytest.fixture
def disk(tmp_path: Path) -> LocalDisk:
    return LocalDisk(tmp_path / "store")


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


def test_a_removal_is_flushed_before_it_returns(tmp_path: Path) -> None:
    flushed: list[int] = []

    def fsync(descriptor: int) -> None:
        os.fsync(descriptor)
        flushed.append(os.fstat(descriptor).st_ino)

    disk = LocalDisk(tmp_path, fsync=fsync)
    disk.create("a/value", b"bytes")
    flushed.clear()
    disk.remove(["a/value"])
    disk.remove(["a/value"])
    assert flushed == [(tmp_path / "a").stat().st_ino] * 2
