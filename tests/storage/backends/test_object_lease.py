"""Leases of other machines, of silent owners, and over a bad connection.

The paces are short, and nothing here depends on how long a step takes: a test waits for what the
lease itself does.
"""

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from schemas.errors import RunLocked, StoreRefused
from schemas.events import NoteTaken
from storage import Entry, EventLog, Store
from storage.backends import object_lease
from storage.backends.lease import Owner
from storage.backends.object_client import Patience
from storage.backends.object_lease import LeaseRecord, ObjectLease, Pace
from storage.backends.object_store import ObjectStore
from storage.backends.process import this_process
from storage.backends.store_url import parse
from tests.s3_server import Fault, S3Server
from tests.storage.builders import RUN, started

pytestmark = pytest.mark.whole

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
KEY = "leases/run-1"
ELSEWHERE = Owner(pid=1, process_started="7", host="node9", since=NOW, machine="another boot")
QUICK = Pace(renew_every_s=0.05, lasts_s=0.4)
ALIVE = Pace(renew_every_s=0.05, lasts_s=30.0)
SLOW = Pace(renew_every_s=3600.0, lasts_s=0.4)
"""Renewed never within a test: as good as dead, as seen from elsewhere."""
IMPATIENT = Patience(connect_s=0.3, request_s=0.3, retries=0, retry_until_s=0.3)


class Clients:
    """Clients of one store, each of which stands for a process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.said: list[str] = []

    def at(self, pace: Pace, patience: Patience | None = None) -> ObjectStore:
        return ObjectStore(
            parse(self.name), os.environ, say=self.said.append, pace=pace, patience=patience
        )


@pytest.fixture
def clients(s3_store: str) -> Clients:
    return Clients(s3_store)


def record_of(backend: ObjectStore) -> LeaseRecord:
    return LeaseRecord.model_validate_json(backend.read(f"{KEY}.json"))


def test_a_living_owner_elsewhere_is_heard_and_refused(clients: Clients) -> None:
    held = clients.at(ALIVE).acquire(KEY, ELSEWHERE)
    with pytest.raises(RunLocked, match="run run-1 is held by process 1 on host node9 since 2026"):
        clients.at(QUICK).acquire(KEY, this_process(NOW))
    held.check()
    held.release()
    assert "waiting up to 30 s to see whether that still runs" in clients.said[0]


def test_a_silent_owner_elsewhere_is_taken_over_and_told_so(clients: Clients) -> None:
    held = clients.at(SLOW).acquire(KEY, ELSEWHERE)
    taken = clients.at(QUICK).acquire(KEY, this_process(NOW))
    assert taken.took_over == ELSEWHERE
    with pytest.raises(RunLocked, match=f"is held by process {os.getpid()}"):
        held.check()
    held.release()
    assert record_of(clients.at(QUICK)).owner == taken.owner, "it was not the old one's to free"
    taken.check()
    taken.release()


def test_of_two_that_wait_for_a_silent_owner_one_takes_over(clients: Clients) -> None:
    silent = clients.at(SLOW).acquire(KEY, ELSEWHERE)
    barrier = threading.Barrier(2)

    def take(machine: str) -> ObjectLease | RunLocked:
        owner = ELSEWHERE.model_copy(update={"pid": 2, "machine": machine})
        barrier.wait()
        try:
            return clients.at(ALIVE).acquire(KEY, owner)
        except RunLocked as refused:
            return refused

    with ThreadPoolExecutor(2) as pool:
        got = list(pool.map(take, ("one", "two")))
    (taken,) = [lease for lease in got if isinstance(lease, ObjectLease)]
    assert taken.took_over == ELSEWHERE
    taken.check()
    taken.release()
    silent.release()


def test_an_owner_silent_for_long_by_the_servers_clock_is_not_waited_for(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_lease, "CLOCKS_AGREE_S", -3600.0)
    held = clients.at(SLOW).acquire(KEY, ELSEWHERE)
    taken = clients.at(SLOW).acquire(KEY, this_process(NOW))
    assert taken.took_over == ELSEWHERE
    assert clients.said == []
    held.release()
    taken.release()


def test_the_owner_decides_how_long_its_lease_lasts(clients: Clients) -> None:
    """A taker in a hurry waits as long as the owner said, and so hears it."""
    held = clients.at(ALIVE).acquire(KEY, ELSEWHERE)
    with pytest.raises(RunLocked):
        clients.at(Pace(renew_every_s=0.01, lasts_s=0.02)).acquire(KEY, this_process(NOW))
    held.release()


def test_one_given_back_while_it_is_watched_is_free(s3: S3Server, clients: Clients) -> None:
    held = clients.at(Pace(renew_every_s=3600.0, lasts_s=30.0)).acquire(KEY, ELSEWHERE)
    backend = ObjectStore(parse(clients.name), os.environ, say=lambda _: held.release(), pace=QUICK)
    taken = backend.acquire(KEY, this_process(NOW))
    assert taken.took_over is None
    taken.release()


def test_a_process_of_this_machine_that_ended_is_not_waited_for(clients: Clients) -> None:
    me = this_process(NOW)
    dead = me.model_copy(update={"process_started": "1"})
    held = clients.at(Pace(renew_every_s=0.05, lasts_s=3600.0)).acquire(KEY, dead)
    taken = clients.at(QUICK).acquire(KEY, me)
    assert taken.took_over == dead
    assert clients.said == []
    held.release()
    taken.release()


def test_the_same_number_in_another_container_is_another_process(clients: Clients) -> None:
    me = this_process(NOW)
    namesake = me.model_copy(update={"machine": "another container"})
    held = clients.at(ALIVE).acquire(KEY, namesake)
    with pytest.raises(RunLocked):
        clients.at(QUICK).acquire(KEY, me)
    held.release()


def test_a_lease_is_renewed_while_it_is_held_and_not_after(clients: Clients) -> None:
    backend = clients.at(QUICK)
    lease = backend.acquire(KEY, this_process(NOW))
    until = time.monotonic() + 30
    while record_of(backend).renewals < 3:
        assert time.monotonic() < until
        time.sleep(0.02)
    lease.release()
    freed = record_of(backend)
    assert freed.free
    assert not any(thread.name == "lease of run run-1" for thread in threading.enumerate())


LOST = [Fault("PUT", "leases", answer=500, carried_out=True)] + [
    Fault("PUT", "leases", answer="none", carried_out=carried_out) for carried_out in (True, False)
]


@pytest.mark.parametrize("fault", LOST, ids=str)
def test_a_lost_answer_neither_loses_nor_doubles_a_lease(
    s3: S3Server, clients: Clients, fault: Fault
) -> None:
    s3.misbehave(replace(fault))
    lease = clients.at(QUICK).acquire(KEY, this_process(NOW))
    s3.misbehave(replace(fault))
    until = time.monotonic() + 30
    while record_of(clients.at(QUICK)).renewals < 2:
        assert time.monotonic() < until
        time.sleep(0.02)
    lease.check()
    lease.release()
    assert record_of(clients.at(QUICK)).free


def checked_until(lease: ObjectLease, moment: float) -> None:
    while time.monotonic() < moment:
        lease.check()


def test_a_lease_that_cannot_be_renewed_in_time_is_not_relied_on(
    s3: S3Server, clients: Clients
) -> None:
    lease = clients.at(SLOW, IMPATIENT).acquire(KEY, this_process(NOW))
    s3.misbehave(Fault("PUT", "leases", answer=500, times=99))
    with pytest.raises(StoreRefused):
        checked_until(lease, time.monotonic() + 30)
    s3.faults.clear()
    lease.check()
    lease.release()


def test_a_server_that_is_gone_does_not_keep_a_lease_from_being_let_go(
    s3: S3Server, clients: Clients
) -> None:
    lease = clients.at(SLOW, IMPATIENT).acquire(KEY, this_process(NOW))
    s3.misbehave(Fault("PUT", "leases", answer=500, times=99))
    lease.release()
    s3.faults.clear()
    assert not record_of(clients.at(SLOW)).free


def test_a_server_that_ignores_if_match_is_refused(s3: S3Server, clients: Clients) -> None:
    clients.at(QUICK).acquire(KEY, this_process(NOW)).release()
    s3.ignores_conditions = True
    with pytest.raises(StoreRefused, match="which the log needs"):
        clients.at(QUICK).acquire(KEY, this_process(NOW))


def test_what_is_no_lease_is_not_overwritten(clients: Clients) -> None:
    backend = clients.at(QUICK)
    backend.create(f"{KEY}.json", b"somebody's file")
    with pytest.raises(StoreRefused, match=r"leases/run-1.json: is not a lease"):
        backend.acquire(KEY, this_process(NOW))
    assert backend.read(f"{KEY}.json") == b"somebody's file"


def test_p14_a_writer_whose_lease_was_taken_over_appends_nothing(clients: Clients) -> None:
    url = parse(clients.name)
    note = Entry(NoteTaken(text="hello", author="test"))
    old = EventLog.create(Store(url, clients.at(SLOW)), RUN)
    old.append([Entry(started())], 0)
    # The owner is made another machine's, or this process would be known to live.
    key = f"leases/{RUN}.json"
    backend = clients.at(SLOW)
    record = LeaseRecord.model_validate_json(backend.read(key))
    backend.replace(key, record.model_copy(update={"owner": ELSEWHERE}).to_bytes())
    with EventLog.open(Store(url, clients.at(SLOW)), RUN, writing=True) as new:
        assert new.lease is not None
        assert new.lease.took_over == ELSEWHERE
        with pytest.raises(RunLocked):
            old.append([note], 1)
        new.append([note], 1)
    old.close()
    assert len(EventLog.open(Store(url, backend), RUN).read()) == 2
