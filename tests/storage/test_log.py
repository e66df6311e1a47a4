import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest

from schemas.errors import DamagedLog, LogError, RunNotFound, StaleWriter, UnknownEvent
from schemas.events import SCHEMA_VERSION, Envelope, NoteTaken
from storage import Entry, EventLog, Store
from storage.backends.local import LocalDisk
from storage.canonical import sha256_hex
from storage.chain import seal
from storage.columns import hot_columns
from storage.segments import Row, decode, encode
from tests.storage.builders import (
    RUN,
    Clock,
    finished,
    proposed,
    scored,
    segments,
    started,
    whole_run,
    write,
    written,
)

NOTE = Entry(NoteTaken(text="hello", author="test"))


def test_p1_events_are_numbered_without_gaps_in_the_order_appended(tmp_path: Path) -> None:
    batches = whole_run(5)
    written(tmp_path, batches)
    envelopes = EventLog.open(tmp_path, RUN).read()
    assert [e.seq for e in envelopes] == list(range(len(envelopes)))
    assert [e.type for e in envelopes] == [entry.event.type for b in batches for entry in b]
    assert {e.run_id for e in envelopes} == {RUN}
    assert {e.schema_version for e in envelopes} == {SCHEMA_VERSION}


def test_append_returns_what_read_finds(tmp_path: Path) -> None:
    with EventLog.create(tmp_path, RUN, clock=Clock()) as log:
        returned = log.append([Entry(started()), NOTE], 0)
        returned += log.append([NOTE], 2)
        assert log.read() == returned
        assert log.head is not None
        assert (log.head.seq, log.head.hash) == (2, returned[-1].hash)


def test_appending_nothing_writes_nothing(tmp_path: Path) -> None:
    with EventLog.create(tmp_path, RUN) as log:
        assert log.append([], 0) == []
    assert segments(tmp_path) == []


def test_p3_stale_writer_is_refused_and_writes_nothing(tmp_path: Path) -> None:
    written(tmp_path, [[Entry(started())]])
    first = EventLog.open(tmp_path, RUN, writing=True, exclusive=False)
    second = EventLog.open(tmp_path, RUN, writing=True, exclusive=False)
    first.append([NOTE], 1)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(StaleWriter, match="event 1 was appended by another writer"):
        second.append([NOTE, NOTE], 1)
    assert sorted(tmp_path.rglob("*")) == before
    assert len(first.read()) == 2
    second.refresh()
    second.append([NOTE], 2)
    assert len(first.read()) == 3


@pytest.mark.parametrize("expected_seq", [0, 2, 99])
def test_p3_a_wrong_expectation_is_refused(tmp_path: Path, expected_seq: int) -> None:
    with EventLog.create(tmp_path, RUN) as log:
        log.append([Entry(started())], 0)
        with pytest.raises(StaleWriter, match="the log is at 1"):
            log.append([NOTE], expected_seq)
    assert len(segments(tmp_path)) == 1


class Flushes:
    """Flushes for real, and remembers of what, by inode: a link has the inode of its file."""

    def __init__(self) -> None:
        self.inodes: list[int] = []

    def __call__(self, descriptor: int) -> None:
        os.fsync(descriptor)
        self.inodes.append(os.fstat(descriptor).st_ino)


def test_p4_a_batch_is_flushed_once_with_its_folder_before_append_returns(tmp_path: Path) -> None:
    flushes = Flushes()
    store = Store(tmp_path, LocalDisk(tmp_path, fsync=flushes))
    with EventLog.create(store, RUN) as log:
        log.append([Entry(started())], 0)
        flushes.inodes.clear()
        log.append([NOTE] * 50, 1)
        path = segments(tmp_path)[-1]
        assert flushes.inodes == [path.stat().st_ino, path.parent.stat().st_ino]


def test_p4_a_new_run_is_flushed_up_to_the_store(tmp_path: Path) -> None:
    flushes = Flushes()
    root = tmp_path / "new" / "store"
    with EventLog.create(Store(root, LocalDisk(root, fsync=flushes)), RUN) as log:
        log.append([Entry(started())], 0)
    folder = segments(root)[0].parent
    above = [folder, *folder.parents][: len(folder.relative_to(tmp_path).parts)]
    for path in [segments(root)[0], *above]:
        assert path.stat().st_ino in flushes.inodes, path


def test_a_refusing_disk_loses_nothing_and_the_log_goes_on(tmp_path: Path) -> None:
    def full(descriptor: int) -> None:
        if failing and stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(28, "No space left on device")
        os.fsync(descriptor)

    failing = False
    log = EventLog.create(Store(tmp_path, LocalDisk(tmp_path, fsync=full)), RUN)
    log.append([Entry(started())], 0)
    failing = True
    with pytest.raises(LogError, match="No space left on device; nothing was stored"):
        log.append([NOTE], 1)
    failing = False
    log.append([NOTE], 1)
    assert len(log.read()) == 2
    assert [p.name for p in segments(tmp_path)] == ["000000000000.parquet", "000000000001.parquet"]


def test_an_existing_run_is_not_created_again(tmp_path: Path) -> None:
    written(tmp_path, [[Entry(started())]])
    with pytest.raises(LogError, match="already in the store"):
        EventLog.create(tmp_path, RUN)


def test_a_run_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound, match="no run 2026"):
        EventLog.open(tmp_path, RUN)


@pytest.mark.parametrize("text", ["../../etc", "a/b", "", "A b", ".hidden"])
def test_a_run_id_never_leaves_the_store(tmp_path: Path, text: str) -> None:
    with pytest.raises(RunNotFound, match="not a run id"):
        EventLog.open(tmp_path, text)
    with pytest.raises(RunNotFound, match="not a run id"):
        EventLog.create(tmp_path, text)


def test_a_reader_cannot_append(tmp_path: Path) -> None:
    written(tmp_path, [[Entry(started())]])
    log = EventLog.open(tmp_path, RUN)
    with pytest.raises(LogError, match="not open for writing"):
        log.append([NOTE], 1)
    with pytest.raises(LogError, match="not open for writing"):
        log.anchor_head()


def test_a_number_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    with (
        EventLog.create(tmp_path, RUN) as log,
        pytest.raises(LogError, match="cannot be recorded"),
    ):
        log.append([Entry(started(signature_parts={"x": float("nan")}))], 0)
    assert segments(tmp_path) == []


@pytest.mark.parametrize(
    "secret", ["sk-ant-0123456789", 'with"quote\\and\nmore', "schlüssel-äöü-123"]
)
def test_no_secret_is_ever_appended(tmp_path: Path, secret: str) -> None:
    with EventLog.create(tmp_path, RUN, secrets={secret, "another-secret"}) as log:
        log.append([Entry(started())], 0)
        leak = NoteTaken(text=f"the key is {secret}, keep it", author="test")
        with pytest.raises(LogError, match="holds a configured secret") as caught:
            log.append([NOTE, Entry(leak)], 1)
        assert secret not in str(caught.value)
        with pytest.raises(LogError, match="holds a configured secret"):
            log.put_blob(f"prompt: {secret}".encode())
        log.append([NOTE], 1)
    assert all(
        secret.encode() not in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    )
    assert [json.loads(e.payload).get("text") for e in EventLog.open(tmp_path, RUN).read()] == [
        None,
        "hello",
    ]


def test_a_short_word_is_no_secret(tmp_path: Path) -> None:
    with EventLog.create(tmp_path, RUN, secrets={"dummy", ""}) as log:
        log.append([Entry(started(workload_name="dummy"))], 0)


def test_blobs_are_found_by_content_and_checked(tmp_path: Path) -> None:
    with EventLog.create(tmp_path, RUN) as log:
        digest = log.put_blob(b"a long prompt")
        assert digest == sha256_hex(b"a long prompt")
        assert log.put_blob(b"a long prompt") == digest
        assert log.get_blob(digest) == b"a long prompt"
        path = tmp_path / "runs" / f"run_id={RUN}" / "blobs" / digest
        path.write_bytes(b"a long romp")
        with pytest.raises(DamagedLog, match="not what was stored"):
            log.get_blob(digest)
        path.unlink()
        with pytest.raises(DamagedLog, match="is missing"):
            log.get_blob(digest)


def rewrite(root: Path, index: int, changes: dict[str, object]) -> None:
    """Replace one event by another with a right hash, as a newer Refold would have written it."""
    path = segments(root)[index]
    row = decode(path.read_bytes())[0]
    from storage.chain import event_hash

    fields = row.envelope._asdict() | changes
    del fields["hash"]
    envelope = Envelope(**fields, hash=event_hash(**fields))
    path.write_bytes(encode([Row(envelope, row.hot)]))


def test_a_newer_schema_version_is_refused_by_name(tmp_path: Path) -> None:
    written(tmp_path, [[Entry(started())], [NOTE]], anchor=False)
    rewrite(tmp_path, 1, {"schema_version": SCHEMA_VERSION + 1})
    words = rf"event 1: NoteTaken has schema version {SCHEMA_VERSION + 1}.*up to {SCHEMA_VERSION}"
    with pytest.raises(UnknownEvent, match=words):
        EventLog.open(tmp_path, RUN).read()


def test_an_unknown_event_is_not_skipped(tmp_path: Path) -> None:
    written(tmp_path, [[Entry(started())], [NOTE]], anchor=False)
    rewrite(tmp_path, 1, {"type": "PlannerDreamt"})
    with pytest.raises(UnknownEvent, match="event 1: this Refold knows no event 'PlannerDreamt'"):
        EventLog.open(tmp_path, RUN).state()


def test_a_finished_run_can_be_appended_to_again(tmp_path: Path) -> None:
    written(tmp_path, whole_run(3))
    with EventLog.open(tmp_path, RUN, writing=True) as log:
        log.append([NOTE], log.next_seq)
        assert log.state().notes[-1].text == "hello"


def test_the_clock_enters_by_an_argument(tmp_path: Path) -> None:
    clock = Clock()
    with EventLog.create(tmp_path, RUN, clock=clock) as log:
        (envelope,) = log.append([Entry(started())], 0)
        assert envelope.at == clock.now


def test_p8_provenance_is_kept_as_it_was_made(tmp_path: Path) -> None:
    batches = whole_run(0)[:3]
    batches.append(
        [
            Entry(proposed(0), 0, 0),
            Entry(scored(0, source="dry", provenance="synthetic"), 0, 0),
            Entry(proposed(1), 0, 1),
            Entry(scored(1, source="benchmark", provenance="measured"), 0, 1),
        ]
    )
    written(tmp_path, batches)
    with EventLog.open(tmp_path, RUN, writing=True) as log:
        write(log, [[NOTE]])
        state = log.state()
    provenances = [t.evaluation and t.evaluation.provenance for t in state.trials.values()]
    assert provenances == ["synthetic", "measured"]


def test_a_batch_is_one_segment(tmp_path: Path) -> None:
    sizes: Sequence[int] = (1, 3, 2)
    written(tmp_path, [[Entry(started())], [NOTE] * 3, [NOTE, Entry(finished())]])
    assert [len(decode(path.read_bytes())) for path in segments(tmp_path)] == list(sizes)


def test_sealing_is_pure() -> None:
    arguments = {"run_id": RUN, "seq": 0, "prev_hash": "0" * 64, "round": None, "trial": None}
    clock = Clock()
    at = clock()
    left = seal(started(), at=at, **arguments)  # type: ignore[arg-type]
    right = seal(started(), at=at, **arguments)  # type: ignore[arg-type]
    assert left == right
    assert hot_columns(started()).signature_model == "1" * 16
