"""Forks on disk (P9): the prefix is shared by reference, never copied, never touched."""

import inspect
import shutil
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from schemas.errors import DamagedLog, LogError, RunNotFound
from schemas.events import ZERO_HASH, Event, RunForked
from storage import Entry, EventLog, Store, fold, list_runs
from storage.backends import SegmentStore
from storage.chain import seal
from storage.columns import hot_columns
from storage.extent import Origin, survey
from storage.heads import read_anchor
from storage.layout import events_prefix, head_key, segment_name
from storage.reading import lineage_of
from storage.segments import Row, decode, encode
from storage.verify import verify
from tests.storage.builders import RUN, START, Clock, segments, started
from tests.storage.lineages import (
    CHILD,
    GRANDCHILD,
    fork,
    forked,
    note,
    origin_in,
    parent_in,
    unflushed,
)

AT = 8
"""The event forked at, in the middle of a run of 14."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return parent_in(tmp_path)


def files(root: Path, run_id: str = RUN) -> dict[str, bytes]:
    """Every byte that a run has in the store."""
    paths = [*(root / "runs" / f"run_id={run_id}").rglob("*"), root / head_key(run_id)]
    return {str(path): path.read_bytes() for path in paths if path.is_file()}


def tampered(root: Path, run_id: str, seq: int, text: str = "tampered") -> None:
    """Event `seq` with another payload, the rest of its segment as it was."""
    for path in sorted((root / events_prefix(run_id)).glob("*.parquet")):
        rows = decode(path.read_bytes())
        if rows[0].envelope.seq <= seq <= rows[-1].envelope.seq:
            place = seq - rows[0].envelope.seq
            old = rows[place].envelope
            payload = old.payload.replace("candidate", text).replace('"done"', f'"{text}"')
            assert payload != old.payload
            rows[place] = Row(old._replace(payload=payload), rows[place].hot)
            path.write_bytes(encode(rows))
            return
    raise AssertionError(f"no event {seq}")


def test_a_fork_reads_through_to_its_parent_and_holds_its_own_events_alone(root: Path) -> None:
    before = files(root)
    child = fork(root, RUN, AT, CHILD, [note("one"), note("two")])
    assert files(root) == before
    inherited, own = child.read()[: AT + 1], child.read()[AT + 1 :]
    assert inherited == EventLog.open(root, RUN).read()[: AT + 1]
    assert [(e.run_id, e.seq) for e in own] == [(CHILD, AT + n) for n in (1, 2, 3)]
    assert own[0].prev_hash == inherited[-1].hash
    there = [decode(path.read_bytes()) for path in (root / events_prefix(CHILD)).iterdir()]
    assert sorted(row.envelope.seq for rows in there for row in rows) == [9, 10, 11]
    report = verify(root, CHILD)
    assert (report.ok, report.events, report.anchored_seq) == (True, 12, 11)
    assert child.state() == fold(child.read())


def test_a_fork_of_a_fork_at_an_event_of_the_grandparent_is_the_grandparents(root: Path) -> None:
    fork(root, RUN, AT, CHILD, [note("one")])
    grandchild = fork(root, CHILD, 3, GRANDCHILD, [note("other")])
    assert lineage_of(Store.at(root).backend, GRANDCHILD) == [(GRANDCHILD, None), (RUN, 3)]
    assert [e.run_id for e in grandchild.read()] == [RUN] * 4 + [GRANDCHILD] * 2
    assert verify(root, GRANDCHILD).ok


def test_a_fork_of_a_fork_at_its_own_event_reads_through_both(root: Path) -> None:
    fork(root, RUN, AT, CHILD, [note("one"), note("two")])
    grandchild = fork(root, CHILD, AT + 2, GRANDCHILD, [note("three")])
    expected = [(GRANDCHILD, None), (CHILD, AT + 2), (RUN, AT)]
    assert lineage_of(Store.at(root).backend, GRANDCHILD) == expected
    assert [n.text for n in grandchild.state().notes] == ["one", "three"]
    assert [point.run_id for point in grandchild.state().forks] == [CHILD, GRANDCHILD]
    assert verify(root, GRANDCHILD).ok


def test_depth_of_descent_costs_no_stack(tmp_path: Path) -> None:
    backend = unflushed(tmp_path).backend
    name, origin = RUN, None
    for seq in range(100):
        name = RUN if origin is None else f"20260305t000000-{seq:06d}-cccccccc"
        event = started() if origin is None else forked(origin)
        made = put(backend, name, seq, event, origin.hash if origin else ZERO_HASH)
        origin = Origin(name, seq, made)
    limit = sys.getrecursionlimit()
    try:
        sys.setrecursionlimit(len(inspect.stack(0)) + 90)
        assert len(EventLog.open(tmp_path, name).read()) == 100
    finally:
        sys.setrecursionlimit(limit)


def put(backend: SegmentStore, run_id: str, seq: int, event: Event, prev_hash: str) -> str:
    """A segment as no log would write it; the hash of its one event."""
    envelope = seal(
        event, run_id=run_id, seq=seq, prev_hash=prev_hash, at=START, round=None, trial=None
    )
    segment = encode([Row(envelope, hot_columns(event))])
    backend.replace(f"{events_prefix(run_id)}/{segment_name(seq)}", segment)
    return envelope.hash


@pytest.mark.parametrize("when", ["before", "after", "both"])
def test_a_parent_may_be_compacted_before_or_after(root: Path, when: str) -> None:
    expected = fork(root, RUN, AT, CHILD, [note("one")]).read()
    shutil.rmtree(root / "runs" / f"run_id={CHILD}")
    (root / head_key(CHILD)).unlink()
    if when != "after":
        compacted(root, RUN)
    child = fork(root, RUN, AT, CHILD, [note("one")])
    if when != "before":
        with EventLog.open(unflushed(root), RUN, writing=True) as log:
            log.append([note("later")], log.next_seq)
            log.compact()
    assert child.read() == expected
    assert verify(root, CHILD).ok


def compacted(root: Path, run_id: str) -> None:
    with EventLog.open(unflushed(root), run_id, writing=True) as log:
        log.compact()


def test_a_compacted_fork_keeps_its_own_events_alone_in_one_segment(root: Path) -> None:
    child = fork(root, RUN, AT, CHILD, [note("one"), note("two")])
    before, parent = child.read(), files(root)
    compacted(root, CHILD)
    assert child.read() == before
    (segment,) = (root / events_prefix(CHILD)).iterdir()
    assert segment.name == segment_name(AT + 1)
    assert pq.read_table(segment)["seq"].to_pylist() == [9, 10, 11]
    assert files(root) == parent


def test_a_fork_whose_parent_is_gone_says_which(root: Path) -> None:
    child = fork(root, RUN, AT, CHILD, [note("one")])
    shutil.rmtree(root / "runs" / f"run_id={RUN}")
    (root / head_key(RUN)).unlink()
    with pytest.raises(DamagedLog, match=f"continues run {RUN}, which is not in the store") as said:
        child.read()
    assert said.value.hint is not None
    assert "bring that run's folder back" in said.value.hint
    assert "not in the store" in str(verify(root, CHILD).problem)
    (run,) = list_runs(root)
    assert (run.run_id, run.status) == (CHILD, "open")  # as its anchor says


def test_a_fork_without_an_anchor_whose_parent_is_gone_is_listed_as_damaged(root: Path) -> None:
    fork(root, RUN, AT, CHILD, [note("one")], anchor=False)
    shutil.rmtree(root / "runs" / f"run_id={RUN}")
    (root / head_key(RUN)).unlink()
    (run,) = list_runs(root)
    assert (run.run_id, run.status) == (CHILD, "damaged")
    assert "not in the store" in str(run.problem)


@pytest.mark.parametrize("first", ["as it was", "compacted"])
def test_what_is_changed_in_the_parent_below_the_fork_is_named_above_it_not_noticed(
    root: Path, first: str
) -> None:
    fork(root, RUN, AT, CHILD, [note("one")])
    if first == "compacted":
        compacted(root, RUN)
    tampered(root, RUN, 11)
    assert verify(root, CHILD).ok
    assert verify(root, RUN).first_bad == 11
    tampered(root, RUN, 5)
    report = verify(root, CHILD)
    assert (report.ok, report.first_bad) == (False, 5)
    assert f"run {RUN}, event 5" in str(report.problem)


def test_a_parent_cut_off_below_the_fork_is_named(root: Path) -> None:
    fork(root, RUN, AT, CHILD, [note("one")])
    for path in segments(root)[4:]:
        path.unlink()
    (root / head_key(RUN)).unlink()
    with pytest.raises(DamagedLog, match="a run that was forked from this one continues it"):
        EventLog.open(root, CHILD).read()


def test_a_run_written_anew_under_the_parents_name_is_not_its_parent(
    root: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    fork(root, RUN, AT, CHILD, [note("one")])
    other = parent_in(tmp_path_factory.mktemp("other"), 5)
    shutil.rmtree(root / "runs" / f"run_id={RUN}")
    shutil.copytree(other / "runs" / f"run_id={RUN}", root / "runs" / f"run_id={RUN}")
    shutil.copy(other / head_key(RUN), root / head_key(RUN))
    report = verify(root, CHILD)
    assert report.first_bad == AT + 1
    assert f"run {CHILD}, event {AT + 1}: does not continue event {AT}" in str(report.problem)


def test_a_circle_of_runs_that_name_each_other_is_refused(tmp_path: Path) -> None:
    """With and without anchors that lie too: as files, for no log writes such a thing."""
    backend = Store.at(tmp_path).backend
    for lying in (False, True):
        for run_id, other in ((RUN, CHILD), (CHILD, RUN)):
            made = put(backend, run_id, 5, forked(Origin(other, 4, "e" * 64)), "e" * 64)
            if lying:
                head = f'{{"seq":5,"hash":"{made}"}}'
                anchor = f'{{"run_id":"{run_id}","first_seq":0,"head":{head},'
                text = anchor + '"summary_version":0,"summary":{}}'
                backend.replace(head_key(run_id), text.encode())
        for run_id in (RUN, CHILD):
            with pytest.raises(DamagedLog):
                EventLog.open(tmp_path, run_id).read()
            assert not verify(tmp_path, run_id).ok
        assert {run.status for run in list_runs(tmp_path)} == {"damaged"}


def test_a_fork_must_begin_with_what_it_continues(root: Path) -> None:
    origin = origin_in(root, RUN, AT)
    with EventLog.create(unflushed(root), CHILD, parent=origin, clock=Clock()) as log:
        assert log.next_seq == AT + 1
        with pytest.raises(LogError, match="begins with RunForked"):
            log.append([note("one")], AT + 1)
        wrong = forked(origin).model_copy(update={"parent_hash": ZERO_HASH})
        log.append([Entry(wrong)], AT + 1)
    with pytest.raises(DamagedLog, match=f"run {CHILD}, event {AT + 1}"):
        EventLog.open(root, CHILD).read()


def test_a_fork_killed_before_its_first_event_is_no_run(root: Path) -> None:
    origin = origin_in(root, RUN, AT)
    log = EventLog.create(unflushed(root), CHILD, parent=origin, clock=Clock())
    log.put_blob(b"a large text")
    log.close()
    assert (root / "runs" / f"run_id={CHILD}" / "blobs").is_dir()
    with pytest.raises(RunNotFound):
        EventLog.open(root, CHILD)
    assert Store.at(root).run_ids() == [RUN]
    assert [run.run_id for run in list_runs(root)] == [RUN]
    with pytest.raises(RunNotFound):
        Store.at(root).find_run(CHILD)


def test_a_parent_that_lacks_the_event_is_refused_before_anything_is_written(root: Path) -> None:
    with pytest.raises(DamagedLog):
        EventLog.create(unflushed(root), CHILD, parent=Origin(RUN, 99, "f" * 64))
    with pytest.raises(RunNotFound):
        EventLog.create(unflushed(root), CHILD, parent=Origin(GRANDCHILD, 0, "f" * 64))
    assert not (root / "runs" / f"run_id={CHILD}").exists()
    fork(root, RUN, AT, CHILD, [])  # and the lease was given back


def test_a_fork_has_its_parents_blobs_and_the_parent_not_its(root: Path) -> None:
    with EventLog.open(unflushed(root), RUN, writing=True) as log:
        theirs = log.put_blob(b"the parent's")
    child = fork(root, RUN, AT, CHILD, [])
    with EventLog.open(root, CHILD, writing=True) as log:
        ours = log.put_blob(b"the fork's")
        assert log.get_blob(theirs) == b"the parent's"
    assert child.get_blob(ours) == b"the fork's"
    with pytest.raises(DamagedLog, match="is missing"):
        EventLog.open(root, RUN).get_blob(ours)


def test_the_anchor_of_a_fork_says_where_its_own_events_begin(root: Path) -> None:
    child = fork(root, RUN, AT, CHILD, [note("one")])
    anchored = read_anchor(Store.at(root).backend, CHILD)
    assert anchored is not None
    assert (anchored.first_seq, anchored.head.seq) == (AT + 1, AT + 2)
    first = root / events_prefix(CHILD) / segment_name(AT + 1)
    first.unlink()
    assert survey(Store.at(root).backend, CHILD).first_seq == AT + 1
    with pytest.raises(DamagedLog, match=f"run {CHILD}, event {AT + 1}: is missing"):
        child.read()


def test_a_listing_counts_what_a_fork_inherits(root: Path) -> None:
    fork(root, RUN, AT, CHILD, [note("one")])
    fork(root, RUN, AT, GRANDCHILD, [note("one")], inherits=False)
    parent, child, anew = list_runs(root)
    assert (child.parent, child.parent_seq) == (RUN, AT)
    assert (child.status, child.events) == ("open", AT + 3)
    assert 0 < child.proposed < parent.proposed
    assert (anew.proposed, anew.scored, anew.rounds, anew.best_trial) == (0, 0, 0, None)
    assert child.started_at == EventLog.open(root, CHILD).state().started_at


def test_a_run_forked_by_nobody_says_so(root: Path) -> None:
    assert not any(isinstance(r.event, RunForked) for r in EventLog.open(root, RUN).iterate())
    assert lineage_of(Store.at(root).backend, RUN) == [(RUN, None)]
