"""Every way to change a run behind its back is named by its first bad event."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.errors import DamagedLog
from schemas.events import Envelope
from storage import EventLog, list_runs, verify
from storage.chain import event_hash
from storage.segments import Row, decode, encode
from tests.storage.builders import RUN, segments, started, whole_run, written
from tests.storage.builders import Clock as Clock

# whole_run(4): 0 RunStarted, 1 AxesDerived, 2 RoundStarted, 3-4, 5-6, 7-8, 9-10 trials,
# 11 NoteTaken, 12 RoundFinished, 13 RunFinished. Trials 0, 1, 3 are scored, 2 is rejected.
LAST = 13


def segment(root: Path, first_seq: int) -> Path:
    return root / "runs" / f"run_id={RUN}" / "events" / f"{first_seq:012d}.parquet"


def rewrite(path: Path, change: Callable[[list[Row]], list[Row]]) -> None:
    path.write_bytes(encode(change(decode(path.read_bytes()))))


def forged(envelope: Envelope, payload: str) -> Envelope:
    """`envelope` with another payload, and the hash that goes with it."""
    fields = envelope._replace(payload=payload)._asdict()
    del fields["hash"]
    return Envelope(**fields, hash=event_hash(**fields))


def edit_payload(root: Path) -> None:
    def change(rows: list[Row]) -> list[Row]:
        envelope = rows[1].envelope
        payload = envelope.payload.replace("3001.0", "9001.0")
        assert payload != envelope.payload
        return [rows[0], Row(envelope._replace(payload=payload), rows[1].hot)]

    rewrite(segment(root, 5), change)


def edit_payload_column_and_hash(root: Path) -> None:
    def change(rows: list[Row]) -> list[Row]:
        envelope, hot = rows[1]
        payload = envelope.payload.replace("3001.0", "9001.0")
        return [rows[0], Row(forged(envelope, payload), hot._replace(tokens_per_s_per_gpu=9001.0))]

    rewrite(segment(root, 5), change)


def upgrade_provenance(root: Path) -> None:
    def change(rows: list[Row]) -> list[Row]:
        return [rows[0], Row(rows[1].envelope, rows[1].hot._replace(provenance="measured"))]

    rewrite(segment(root, 5), change)


def change_hot_column(root: Path) -> None:
    def change(rows: list[Row]) -> list[Row]:
        return [rows[0], Row(rows[1].envelope, rows[1].hot._replace(fits=True))]

    rewrite(segment(root, 7), change)


def change_round(root: Path) -> None:
    def change(rows: list[Row]) -> list[Row]:
        return [Row(rows[0].envelope._replace(round=5), rows[0].hot), rows[1]]

    rewrite(segment(root, 9), change)


def drop_segment(root: Path) -> None:
    segment(root, 5).unlink()


def drop_event(root: Path) -> None:
    rewrite(segment(root, 5), lambda rows: rows[1:])


def swap_events(root: Path) -> None:
    rewrite(segment(root, 5), lambda rows: rows[::-1])


def swap_segments(root: Path) -> None:
    one, other, spare = segment(root, 5), segment(root, 7), root / "spare"
    one.rename(spare)
    other.rename(one)
    spare.rename(other)


def duplicate_event(root: Path) -> None:
    rewrite(segment(root, 5), lambda rows: [rows[0], rows[1], rows[1]])


def duplicate_segment(root: Path) -> None:
    shutil.copy(segment(root, 5), segment(root, 6))


def truncate_segment(root: Path) -> None:
    path = segment(root, 5)
    path.write_bytes(path.read_bytes()[:-8])


def empty_segment(root: Path) -> None:
    segment(root, 5).write_bytes(b"")


def append_foreign_event(root: Path) -> None:
    other = root.parent / "other"
    run_id = "20260304t050607-890123-zzzzzzzz"
    with EventLog.create(other, run_id, clock=Clock()) as log:
        log.append([(started(), None, None)], 0)
    source = other / "runs" / f"run_id={run_id}" / "events" / "000000000000.parquet"
    shutil.copy(source, segment(root, LAST + 1))


def append_copy_of_own_event(root: Path) -> None:
    shutil.copy(segment(root, 11), segment(root, LAST + 1))


def delete_tail(root: Path) -> None:
    segment(root, LAST).unlink()
    segment(root, LAST - 1).unlink()


def delete_everything(root: Path) -> None:
    for path in segments(root):
        path.unlink()


def forge_tail(root: Path, old: str, new: str) -> None:
    """Rewrite the last event, hash and all."""

    def change(rows: list[Row]) -> list[Row]:
        payload = rows[0].envelope.payload.replace(old, new)
        assert payload != rows[0].envelope.payload
        return [Row(forged(rows[0].envelope, payload), rows[0].hot)]

    rewrite(segment(root, LAST), change)


def replace_tail(root: Path) -> None:
    """Consistently: only the anchor can tell."""
    forge_tail(root, "seed only", "seeds only")


def respell_payload(root: Path) -> None:
    forge_tail(root, '","', '", "')


def misspell_a_key(root: Path) -> None:
    forge_tail(root, '"why"', '"whyever"')


def break_json(root: Path) -> None:
    forge_tail(root, "}", "")


def other_file_among_segments(root: Path) -> None:
    shutil.copy(segment(root, 5), segment(root, 5).with_name("copy.parquet"))


TABLE: list[tuple[Callable[[Path], None], int | None, str]] = [
    (edit_payload, 6, "not what was written"),
    (edit_payload_column_and_hash, 7, "does not follow the event before it"),
    (upgrade_provenance, 6, "column provenance says 'measured', its payload says 'analytic'"),
    (change_hot_column, 8, "column fits says True, its payload says False"),
    (change_round, 9, "not what was written"),
    (drop_segment, 5, "is missing"),
    (drop_event, 5, "sequence number 6"),
    (swap_events, 5, "sequence number 6"),
    (swap_segments, 5, "sequence number 7"),
    (duplicate_event, 7, "sequence number 6"),
    (duplicate_segment, 6, "is there twice"),
    (truncate_segment, 5, "is torn"),
    (empty_segment, 5, "is torn"),
    (append_foreign_event, LAST + 1, "belongs to run"),
    (append_copy_of_own_event, LAST + 1, "sequence number 11"),
    (delete_tail, LAST - 1, f"is missing; the head was anchored at event {LAST}"),
    (delete_everything, 0, "is missing"),
    (replace_tail, LAST, "not the event that was anchored"),
    (respell_payload, LAST, "not canonical JSON"),
    (misspell_a_key, LAST, "not a RunFinished: why: Field required"),
    (break_json, LAST, "not JSON"),
    (other_file_among_segments, None, "copy.parquet lies among its segments"),
]


@pytest.mark.parametrize(
    ("tamper", "first_bad", "said"), TABLE, ids=[row[0].__name__ for row in TABLE]
)
def test_tampering_is_named(
    tmp_path: Path, tamper: Callable[[Path], None], first_bad: int | None, said: str
) -> None:
    root = written(tmp_path / "store", whole_run(4))
    assert len(EventLog.open(root, RUN).read()) == LAST + 1
    tamper(root)
    report = verify(root, RUN)
    assert not report.ok
    assert report.problem is not None
    assert said in report.problem
    assert report.first_bad == first_bad
    with pytest.raises(
        DamagedLog, match="segments" if first_bad is None else f"event {first_bad}:"
    ):
        EventLog.open(root, RUN).state()
    with pytest.raises(DamagedLog):
        EventLog.open(root, RUN, writing=True)


def test_a_run_whose_folder_was_deleted_is_missed(tmp_path: Path) -> None:
    root = written(tmp_path, whole_run(4))
    shutil.rmtree(root / "runs" / f"run_id={RUN}")
    assert (
        verify(root, RUN).problem
        == f"run {RUN}, event 0: is missing; the head was anchored at event 13"
    )


def test_a_damaged_anchor_is_refused(tmp_path: Path) -> None:
    root = written(tmp_path, whole_run(4))
    head = root / "heads" / f"{RUN}.json"
    head.write_text("{")
    with pytest.raises(DamagedLog, match="anchored head is not readable"):
        EventLog.open(root, RUN)
    assert list_runs(root)[0].status == "damaged"


def test_an_untouched_run_with_its_blobs_verifies(tmp_path: Path) -> None:
    with EventLog.create(tmp_path, RUN, clock=Clock()) as log:
        blobs = {name: log.put_blob(name.encode()) for name in ("workload", "cluster", "file")}
        spec = started(
            workload_blob=blobs["workload"],
            cluster_blob=blobs["cluster"],
            input_blobs={"w.yaml": blobs["file"]},
        )
        log.append([(spec, None, None)], 0)
        log.anchor_head()
    report = verify(tmp_path, RUN)
    assert (report.ok, report.events, report.blobs, report.warnings) == (True, 1, 3, ())
    (tmp_path / "runs" / f"run_id={RUN}" / "blobs" / blobs["file"]).write_bytes(b"another")
    report = verify(tmp_path, RUN)
    assert report.first_bad == 0
    assert report.problem is not None
    assert "bad blob" in report.problem


def test_an_unanchored_run_says_what_would_go_unseen(tmp_path: Path) -> None:
    root = written(tmp_path, whole_run(2), anchor=False)
    assert "no head is anchored" in verify(root, RUN).warnings[0]
