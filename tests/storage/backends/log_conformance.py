"""The event log on top of a backend: a class of tests that each kind of store passes.

What is done behind the log's back is done through the backend, so it is the same on all of them.
A subclass is named `Test…` and has a fixture `place`: an empty store.
"""

from collections.abc import Callable

import pytest

from schemas.errors import DamagedLog, LogError, RunLocked, RunNotFound, StaleWriter
from schemas.events import NoteTaken, TailRecovered
from storage import Entry, EventLog, Store, list_runs, verify
from storage.backends import SegmentStore
from storage.evaluation_cache import identity_of
from storage.layout import (
    blobs_prefix,
    discarded_prefix,
    events_prefix,
    head_key,
    run_prefix,
    segment_name,
)
from storage.segments import decode, encode
from tests.storage.backends.places import Place
from tests.storage.builders import (
    RUN,
    Clock,
    evaluation,
    started,
    trial_number,
    whole_run,
    write,
)

NOTE = Entry(NoteTaken(text="hello", author="test"))
LAST = 13
"""The last event of `whole_run(4)`."""

# Appends notes one by one without the lease until it has won its share.
RACER = """
    import os, sys
    from schemas.errors import StaleWriter
    from schemas.events import NoteTaken
    from storage import Entry, EventLog, Store
    store = Store.locate(sys.argv[1], os.environ)
    log = EventLog.open(store, sys.argv[2], writing=True, exclusive=False)
    won = 0
    while won < int(sys.argv[4]):
        note = NoteTaken(text=f"{sys.argv[3]} {won}", author=sys.argv[3])
        try:
            log.append([Entry(note)], log.next_seq)
            won += 1
        except StaleWriter:
            log.refresh()
"""

# Appends and says after each append, until it is killed, how many events are safe.
WRITER = """
    import os, sys
    from schemas.events import NoteTaken
    from storage import Entry, EventLog, Store
    log = EventLog.open(Store.locate(sys.argv[1], os.environ), sys.argv[2], writing=True)
    while True:
        print(log.next_seq, flush=True)
        log.append([Entry(NoteTaken(text="x" * 500, author="w"))] * 3, log.next_seq)
        log.anchor_head()
"""


def written(place: Place, trials: int = 4, *, anchor: bool = True) -> Store:
    with EventLog.create(place.store, RUN, clock=Clock()) as log:
        write(log, whole_run(trials))
        if anchor:
            log.anchor_head()
    return place.store


def segment(first_seq: int) -> str:
    return f"{events_prefix(RUN)}/{segment_name(first_seq)}"


def edit(backend: SegmentStore) -> None:
    rows = decode(backend.read(segment(5)))
    payload = rows[1].envelope.payload.replace("3001.0", "9001.0")
    forged = rows[1].envelope._replace(payload=payload)
    backend.replace(segment(5), encode([rows[0], rows[1]._replace(envelope=forged)]))


def drop(backend: SegmentStore) -> None:
    backend.remove([segment(5)])


def duplicate(backend: SegmentStore) -> None:
    backend.create(segment(6), backend.read(segment(5)))


def tear(backend: SegmentStore) -> None:
    backend.replace(segment(5), backend.read(segment(5))[:-8])


def empty(backend: SegmentStore) -> None:
    backend.replace(segment(5), b"")


def drop_tail(backend: SegmentStore) -> None:
    backend.remove([segment(LAST)])


def drop_run(backend: SegmentStore) -> None:
    events = events_prefix(RUN)
    backend.remove([f"{events}/{name}" for name in backend.names(events)])


def add_a_file(backend: SegmentStore) -> None:
    backend.create(f"{events_prefix(RUN)}/copy.parquet", backend.read(segment(5)))


TAMPERING: list[tuple[Callable[[SegmentStore], None], int | None, str]] = [
    (edit, 6, "not what was written"),
    (drop, 5, "is missing"),
    (duplicate, 6, "is there twice"),
    (tear, 5, "is torn"),
    (empty, 5, "is torn"),
    (drop_tail, LAST, f"the head was anchored at event {LAST}"),
    (drop_run, 0, "is missing"),
    (add_a_file, None, "copy.parquet lies among its segments"),
]


class CarriesLogs:
    """The promises of the log (P1 to P16), as far as a backend can break them."""

    def test_p1_what_is_appended_is_read_and_found(self, place: Place) -> None:
        with EventLog.create(place.store, RUN, clock=Clock()) as log:
            returned = log.append([Entry(started()), NOTE], 0) + log.append([NOTE], 2)
            assert log.read() == returned
        assert EventLog.open(place.store, RUN).read() == returned
        assert place.store.run_ids() == [RUN]
        assert place.store.find_run("latest") == RUN
        assert place.backend.folders("runs") == [f"run_id={RUN}"]

    def test_an_empty_store_has_no_runs(self, place: Place) -> None:
        assert list_runs(place.store) == []
        with pytest.raises(RunNotFound, match=f"no run 'latest' in the store {place.name}"):
            place.store.find_run("latest")
        with pytest.raises(RunNotFound):
            EventLog.open(place.store, RUN)

    def test_an_existing_run_is_not_created_again(self, place: Place) -> None:
        written(place, 0)
        with pytest.raises(LogError, match="already in the store"):
            EventLog.create(place.store, RUN)

    def test_p3_a_stale_writer_is_refused_and_writes_nothing(self, place: Place) -> None:
        store = written(place, 0)
        one = EventLog.open(store, RUN, writing=True, exclusive=False)
        other = EventLog.open(store, RUN, writing=True, exclusive=False)
        one.append([NOTE], one.next_seq)
        before = place.backend.names(events_prefix(RUN))
        with pytest.raises(StaleWriter, match="was appended by another writer"):
            other.append([NOTE, NOTE], other.next_seq)
        assert place.backend.names(events_prefix(RUN)) == before
        other.refresh()
        other.append([NOTE], other.next_seq)
        assert len(one.read()) == other.next_seq

    def test_p3_processes_appending_never_share_a_number(self, place: Place) -> None:
        store = written(place, 0)
        before = len(EventLog.open(store, RUN).read())
        racers = [place.process(RACER, RUN, name, "15") for name in ("a", "b")]
        for racer in racers:
            racer.communicate(timeout=60)
        state = EventLog.open(store, RUN).state()
        assert state.head_seq == before + 30 - 1
        for name in ("a", "b"):
            texts = [note.text for note in state.notes if note.author == name]
            assert texts == [f"{name} {n}" for n in range(15)]

    def test_p4_no_acknowledged_event_is_lost_to_kill_9(self, place: Place) -> None:
        store = written(place, 0)
        process = place.process(WRITER, RUN)
        assert process.stdout is not None
        for _ in range(6):
            safe = int(process.stdout.readline())
        process.kill()
        rest = process.communicate()[0].split()
        safe = int(rest[-1]) if rest else safe
        with EventLog.open(store, RUN, writing=True) as log:
            assert log.lease is not None
            assert log.lease.took_over is not None
            assert log.lease.took_over.pid == process.pid
            assert safe <= log.next_seq <= safe + 4
            log.append([NOTE], log.next_seq)
        assert verify(store, RUN).first_bad == 0  # only the blobs of `started()` are made up

    def test_p2_a_torn_tail_beyond_the_head_is_set_aside_and_recorded(self, place: Place) -> None:
        store = written(place, anchor=False)
        torn = place.backend.read(segment(LAST))[:-1]
        place.backend.replace(segment(LAST), torn)
        place.backend.create(f"{events_prefix(RUN)}/.tmp-leftover", b"PAR1")
        assert len(EventLog.open(store, RUN).read()) == LAST, "a reader sees what is whole"
        with EventLog.open(store, RUN, writing=True) as log:
            aside = (segment_name(LAST), "tmp-leftover")
            assert log.recovered == aside
            assert log.next_seq == LAST + 1
            assert log.state().recoveries == (TailRecovered(discarded=aside),)
        assert place.backend.read(f"{discarded_prefix(RUN)}/{segment_name(LAST)}") == torn
        with EventLog.open(store, RUN, writing=True) as log:
            assert log.recovered == ()

    def test_p2_a_torn_segment_at_or_below_the_head_is_refused(self, place: Place) -> None:
        store = written(place)
        place.backend.replace(segment(LAST), b"")
        for writing in (False, True):
            with pytest.raises(DamagedLog, match=f"event {LAST}: segment .* is torn"):
                EventLog.open(store, RUN, writing=writing).read()

    def test_p2_the_head_moves_only_forward(self, place: Place) -> None:
        store = written(place, 0)
        ahead = EventLog.open(store, RUN, writing=True, exclusive=False)
        behind = EventLog.open(store, RUN, writing=True, exclusive=False)
        ahead.append([NOTE], ahead.next_seq)
        ahead.anchor_head()
        with pytest.raises(StaleWriter, match="is anchored already"):
            behind.anchor_head()
        assert verify(store, RUN).anchored_seq == ahead.next_seq - 1

    def test_p14_one_process_writes_at_a_time(self, place: Place) -> None:
        with EventLog.create(place.store, RUN) as log:
            log.append([Entry(started())], 0)
            with pytest.raises(RunLocked, match=f"run {RUN} is held by process"):
                EventLog.open(place.store, RUN, writing=True)
            log.append([NOTE], 1)
        EventLog.open(place.store, RUN, writing=True).close()

    def test_a_compacted_run_is_one_segment_reads_the_same_and_goes_on(self, place: Place) -> None:
        store = written(place)
        before = EventLog.open(store, RUN).read()
        asleep = EventLog.open(store, RUN, writing=True, exclusive=False)
        with EventLog.open(store, RUN, writing=True) as log:
            log.append([NOTE], log.next_seq)
            assert log.compact() > 2
        assert place.backend.names(events_prefix(RUN)) == [segment_name(0)]
        with pytest.raises(StaleWriter):
            asleep.append([NOTE], asleep.next_seq)
        with EventLog.open(store, RUN, writing=True) as log:
            log.append([NOTE], log.next_seq)
            assert log.read()[:-2] == before

    def test_blobs_are_found_by_content_and_checked(self, place: Place) -> None:
        with EventLog.create(place.store, RUN) as log:
            digest = log.put_blob(b"a long prompt")
            assert log.put_blob(b"a long prompt") == digest
            assert log.get_blob(digest) == b"a long prompt"
            place.backend.replace(f"{blobs_prefix(RUN)}/{digest}", b"a long romp")
            with pytest.raises(DamagedLog, match="not what was stored"):
                log.get_blob(digest)
            place.backend.remove([f"{blobs_prefix(RUN)}/{digest}"])
            with pytest.raises(DamagedLog, match="is missing"):
                log.get_blob(digest)

    def test_p7_an_evaluation_is_found_by_its_identity_and_the_first_stands(
        self, place: Place
    ) -> None:
        made = evaluation(trial_number(0))
        cache = place.store.evaluations
        assert cache.find(identity_of(made)) == (None, None)
        assert cache.put(made) is None
        assert cache.put(made) is None
        warning = cache.put(evaluation(trial_number(0), tokens_per_s_per_gpu=1.0))
        assert warning is not None
        assert "the first one is kept" in warning
        assert place.store.evaluations.find(identity_of(made)).evaluation == made

    def test_a_listing_is_the_same_with_and_without_an_anchor(self, place: Place) -> None:
        store = written(place, 5)
        (anchored,) = list_runs(store)
        place.backend.remove([head_key(RUN)])
        assert list_runs(store) == [anchored]
        assert (anchored.status, anchored.best_trial) == ("finished", 4)
        assert "no head is anchored" in verify(store, RUN).warnings[0]

    def test_an_untouched_run_verifies(self, place: Place) -> None:
        with EventLog.create(place.store, RUN, clock=Clock()) as log:
            blobs = [log.put_blob(name) for name in (b"workload", b"cluster")]
            spec = started(workload_blob=blobs[0], cluster_blob=blobs[1])
            log.append([Entry(spec)], 0)
            log.anchor_head()
        report = verify(place.store, RUN)
        assert (report.ok, report.events, report.blobs, report.warnings) == (True, 1, 2, ())
        assert place.backend.folders(run_prefix(RUN)) == ["blobs", "events"]

    @pytest.mark.parametrize(
        ("tamper", "first_bad", "said"), TAMPERING, ids=[row[0].__name__ for row in TAMPERING]
    )
    def test_tampering_is_named(
        self,
        place: Place,
        tamper: Callable[[SegmentStore], None],
        first_bad: int | None,
        said: str,
    ) -> None:
        store = written(place)
        tamper(place.backend)
        report = verify(store, RUN)
        assert report.problem is not None
        assert said in report.problem
        assert report.first_bad == first_bad
        with pytest.raises(DamagedLog):
            EventLog.open(store, RUN, writing=True)
