import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.events import Event, NoteTaken, RunInterrupted
from storage import Entry, EventLog, Store, list_runs, verify
from storage.chain import seal
from storage.run_ids import fresh_run_id, run_id
from storage.segments import decode, encode
from storage.summary import RunSummary, Summariser, summarise
from tests.storage.builders import (
    RUN,
    START,
    Clock,
    proposed,
    rejected,
    round_started,
    scored,
    segments,
    started,
    whole_run,
    write,
    written,
)

NOTE = Entry(NoteTaken(text="hello", author="test"))


def edit_anchor(root: Path, **changes: object) -> None:
    head = root / "heads" / f"{RUN}.json"
    anchor = json.loads(head.read_text())
    summary = {**anchor["summary"], **changes.pop("summary", {})}  # type: ignore[dict-item]
    head.write_text(json.dumps({**anchor, "summary": summary, **changes}))


def test_an_empty_store_has_no_runs(tmp_path: Path) -> None:
    assert list_runs(tmp_path / "nowhere") == []
    assert not (tmp_path / "nowhere").exists()


def test_a_listing_is_the_same_with_and_without_an_anchor(tmp_path: Path) -> None:
    (anchored,) = list_runs(written(tmp_path / "a", whole_run(5)))
    (unanchored,) = list_runs(written(tmp_path / "b", whole_run(5), anchor=False))
    assert anchored == unanchored
    assert (anchored.status, anchored.why) == ("finished", "seed only")
    assert (anchored.proposed, anchored.scored, anchored.rejected) == (5, 4, 1)
    assert (anchored.best_trial, anchored.best_tokens_per_s_per_gpu) == (4, 3004.0)
    assert (anchored.workload_name, anchored.cluster_name) == ("mixtral", "mi355x_4nodes")


def test_a_listing_sees_what_lies_beyond_the_anchor(tmp_path: Path) -> None:
    with EventLog.create(tmp_path, RUN, clock=Clock()) as log:
        write(log, whole_run(3)[:4])
        log.anchor_head()
        write(log, [[Entry(proposed(1), 0, 1), Entry(scored(1), 0, 1)]])
        (run,) = list_runs(tmp_path)
        assert (run.status, run.events, run.best_trial) == ("open", 7, 1)
        write(log, [[Entry(RunInterrupted(why="Ctrl-C"))]])
    (run,) = list_runs(tmp_path)
    assert (run.status, run.why) == ("interrupted", "Ctrl-C")


def test_a_listing_reads_no_segment_that_the_anchor_covers(tmp_path: Path) -> None:
    written(tmp_path, whole_run(3))
    before = list_runs(tmp_path)
    for path in segments(tmp_path):
        path.write_bytes(b"never opened")
    assert list_runs(tmp_path) == before


def test_a_summary_of_another_version_is_rebuilt(tmp_path: Path) -> None:
    written(tmp_path, whole_run(3))
    before = list_runs(tmp_path)
    edit_anchor(tmp_path, summary_version=0, summary={"workload_name": "stale"}, sha256=None)
    assert list_runs(tmp_path) == before


def test_an_anchor_of_a_store_from_before_they_had_checksums_is_read(tmp_path: Path) -> None:
    written(tmp_path, whole_run(3))
    before = list_runs(tmp_path)
    edit_anchor(tmp_path, sha256=None)
    assert list_runs(tmp_path) == before


def test_a_changed_summary_is_not_listed(tmp_path: Path) -> None:
    with EventLog.create(tmp_path, RUN, clock=Clock()) as log:
        digest = log.put_blob(b"kept")
        spec = Entry(started(workload_blob=digest, cluster_blob=digest))
        write(log, [[spec], *whole_run(3)[1:]])
        log.anchor_head()
    edit_anchor(tmp_path, summary={"best_tokens_per_s_per_gpu": 9999.0})
    (run,) = list_runs(tmp_path)
    assert run.status == "damaged"
    assert run.problem == f"run {RUN}: its anchored head is not what was written"
    edit_anchor(tmp_path, sha256=None)
    report = verify(tmp_path, RUN)
    assert report.problem is not None
    assert "its anchored head summarises other events than the run's" in report.problem


@pytest.mark.parametrize("changed", ["payload", "missing"])
def test_what_lies_beyond_the_anchor_is_listed_only_if_it_follows_it(
    tmp_path: Path, changed: str
) -> None:
    written(tmp_path, whole_run(1)[:2])
    with EventLog.open(tmp_path, RUN, writing=True, clock=Clock()) as log:
        write(log, whole_run(1)[2:4])
    path = segments(tmp_path)[2]
    if changed == "missing":
        path.unlink()
    else:
        (row,) = decode(path.read_bytes())
        payload = row.envelope.payload.replace('"planned":1', '"planned":7')
        assert payload != row.envelope.payload
        forged = row.envelope._replace(payload=payload)
        path.write_bytes(encode([row._replace(envelope=forged)]))
    (run,) = list_runs(tmp_path)
    assert run.status == "damaged"
    assert "event 2" in (run.problem or "")


def test_a_run_whose_segments_are_all_gone_is_listed_as_damaged(tmp_path: Path) -> None:
    written(tmp_path, whole_run(1))
    for path in segments(tmp_path):
        path.unlink()
    (run,) = list_runs(tmp_path)
    assert (run.status, run.problem) == ("damaged", f"run {RUN}, event 0: is missing")


def test_a_damaged_run_is_listed_beside_the_others(tmp_path: Path) -> None:
    written(tmp_path, whole_run(2))
    later = "20260305t050607-890123-aaaaaaaa"
    with EventLog.create(tmp_path, later, clock=Clock()) as log:
        log.append([Entry(started())], 0)
    segments(tmp_path)[-1].unlink()
    edit_anchor(tmp_path, summary_version=0, sha256=None)
    damaged, whole = list_runs(tmp_path)
    assert (damaged.run_id, damaged.status) == (RUN, "damaged")
    assert damaged.problem is not None
    assert "is missing" in damaged.problem
    assert (whole.run_id, whole.status) == (later, "open")


def test_runs_are_listed_oldest_first_and_found_by_a_part(tmp_path: Path) -> None:
    ids = [run_id(START + timedelta(hours=h), bytes([h] * 5)) for h in (3, 1, 2)]
    for name in ids:
        with EventLog.create(tmp_path, name) as log:
            log.append([Entry(started())], 0)
    store = Store.at(tmp_path)
    assert [run.run_id for run in list_runs(store)] == sorted(ids)
    assert store.find_run("latest") == ids[0]
    assert store.find_run(ids[1][:11]) == ids[1]
    assert store.find_run(ids[2][-8:]) == ids[2]


times = st.datetimes(datetime(2000, 1, 1), datetime(2098, 12, 31), timezones=st.just(UTC))


@given(times, times, st.binary(min_size=5, max_size=5), st.binary(min_size=5, max_size=5))
def test_run_ids_sort_by_time_and_differ_by_entropy(
    one: object, other: object, left: bytes, right: bytes
) -> None:
    a, b = run_id(one, left), run_id(other, right)  # type: ignore[arg-type]
    if one != other:
        assert (a < b) == (one < other)  # type: ignore[operator]
    assert (a == b) == (one == other and left == right)
    assert set(a) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


def test_fresh_run_ids_do_not_repeat() -> None:
    assert len({fresh_run_id() for _ in range(1000)}) == 1000


@given(st.lists(st.sampled_from(["scored", "rejected", "in flight", "note"]), max_size=12))
def test_many_events_are_summarised_as_one_by_one(outcomes: list[str]) -> None:
    events: list[tuple[Event, int | None]] = [(started(), None), (round_started(3), None)]
    for number, outcome in enumerate(outcomes):
        if outcome == "note":
            events.append((NOTE.event, None))
            continue
        events.append((proposed(number), number))
        if outcome != "in flight":
            verdict = scored(number % 3) if outcome == "scored" else rejected(number)
            events.append((verdict, number))
    one_by_one, together = RunSummary(run_id=RUN), Summariser(RUN)
    clock = Clock()
    for seq, (event, trial) in enumerate(events):
        envelope = seal(event, run_id=RUN, seq=seq, prev_hash="", at=clock(), round=0, trial=trial)
        one_by_one = summarise(one_by_one, envelope, event)
        together.add(envelope, event)
        if seq % 4 == 0:
            assert together.summary == one_by_one
    assert together.summary == one_by_one
