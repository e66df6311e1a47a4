"""What every backend promises (B1 to B4), and the lease; a class of tests per backend has these.

A subclass is named `Test…` and has a fixture `place`: an empty store.
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from schemas.errors import RunLocked
from storage.backends import AlreadyStored, NotStored
from storage.backends.process import this_process
from tests.storage.backends.places import Place

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
KEY = "leases/run-1"

# Waits for a line, then tries to create each of the keys; prints those it created.
RACER = """
    import os, sys
    from storage import Store
    from storage.backends import AlreadyStored
    backend = Store.locate(sys.argv[1], os.environ).backend
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(int(sys.argv[2])):
        try:
            backend.create(f"race/{number}", b"the same bytes")
        except AlreadyStored:
            continue
        print(number)
"""

# Takes the lease, says so, and holds it until its input ends.
HOLDER = """
    import os, sys
    from datetime import UTC, datetime
    from storage import Store
    from storage.backends.process import this_process
    backend = Store.locate(sys.argv[1], os.environ).backend
    lease = backend.acquire("leases/run-1", this_process(datetime(2026, 1, 2, tzinfo=UTC)))
    print("held", flush=True)
    sys.stdin.readline()
    lease.release()
"""

# Waits for a line, then tries to take the lease once; says how that went, and holds on.
TAKER = """
    import os, sys
    from datetime import UTC, datetime
    from schemas.errors import RunLocked
    from storage import Store
    from storage.backends.process import this_process
    backend = Store.locate(sys.argv[1], os.environ).backend
    owner = this_process(datetime(2026, 1, 2, tzinfo=UTC))
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        lease = backend.acquire("leases/run-1", owner)
    except RunLocked:
        print("refused", flush=True)
    else:
        print("took over" if lease.took_over else "took", flush=True)
    sys.stdin.readline()
"""


class StoresValues:
    """B1 to B4, and what listings show."""

    def test_b1_a_created_value_reads_back(self, place: Place) -> None:
        place.backend.create("a/run_id=1/value.parquet", b"by\x00tes")
        backend = place.backend
        assert backend.read("a/run_id=1/value.parquet") == b"by\x00tes"
        assert backend.names("a/run_id=1") == ["value.parquet"]
        assert backend.folders("a") == ["run_id=1"]
        assert backend.names("a") == []
        assert backend.leftovers("a/run_id=1") == []

    def test_b1_an_empty_value_is_a_value(self, place: Place) -> None:
        place.backend.create("a/value", b"")
        assert place.backend.read("a/value") == b""
        assert place.backend.names("a") == ["value"]

    def test_b1_a_value_of_several_mebibytes_is_whole(self, place: Place) -> None:
        data = bytes(range(256)) * (7 * 4096)
        place.backend.create("a/value", data)
        assert place.backend.read("a/value") == data
        place.backend.replace("a/value", data[::-1])
        assert place.backend.read("a/value") == data[::-1]

    def test_b2_a_taken_key_is_refused_and_keeps_its_value(self, place: Place) -> None:
        backend = place.backend
        backend.create("a/value", b"first")
        for data in (b"second", b"first"):
            with pytest.raises(AlreadyStored):
                backend.create("a/value", data)
        assert backend.read("a/value") == b"first"
        assert backend.leftovers("a") == []

    def test_b2_of_many_threads_one_wins(self, place: Place) -> None:
        backend = place.backend
        won: list[tuple[int, int]] = []
        barrier = threading.Barrier(8)

        def create(number: int) -> None:
            for key in range(5):
                barrier.wait()
                try:
                    backend.create(f"a/{key}", str(number).encode())
                except AlreadyStored:
                    continue
                won.append((key, number))

        threads = [threading.Thread(target=create, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(key for key, _ in won) == list(range(5))
        for key, number in won:
            assert backend.read(f"a/{key}") == str(number).encode()

    def test_b2_of_several_processes_one_wins_even_with_equal_bytes(self, place: Place) -> None:
        keys = 40
        racers = [place.process(RACER, str(keys)) for _ in range(2)]
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        won = [int(line) for racer in racers for line in racer.communicate(timeout=60)[0].split()]
        assert sorted(won) == list(range(keys))

    def test_a_value_is_replaced_whole(self, place: Place) -> None:
        backend = place.backend
        backend.replace("a/value", b"first")
        backend.replace("a/value", b"second")
        assert backend.read("a/value") == b"second"
        assert backend.names("a") == ["value"]
        assert backend.leftovers("a") == []

    def test_a_value_moves(self, place: Place) -> None:
        backend = place.backend
        backend.create("a/value", b"bytes")
        backend.move("a/value", "b/moved")
        assert backend.names("a") == []
        assert backend.read("b/moved") == b"bytes"
        with pytest.raises(NotStored):
            backend.read("a/value")
        with pytest.raises(NotStored):
            backend.move("a/value", "b/again")
        assert backend.names("b") == ["moved"]

    def test_a_removed_key_is_free_again(self, place: Place) -> None:
        backend = place.backend
        backend.create("a/value", b"bytes")
        backend.create("a/value2", b"another's")
        backend.remove(["a/value"])
        assert backend.names("a") == ["value2"]
        with pytest.raises(NotStored):
            backend.read("a/value")
        backend.remove(["a/value"])
        backend.create("a/value", b"new")
        assert backend.read("a/value") == b"new"

    def test_many_keys_are_removed_at_once_whether_they_are_there_or_not(
        self, place: Place
    ) -> None:
        backend = place.backend
        for name in ("a/1", "a/2", "b/3", "b/4"):
            backend.create(name, b"")
        backend.remove(["a/1", "a/missing", "b/3", "nowhere/5"])
        assert (backend.names("a"), backend.names("b")) == (["2"], ["4"])
        backend.remove([])

    def test_removing_what_never_was_is_no_error(self, place: Place) -> None:
        place.backend.remove(["nowhere/value"])
        place.backend.create("a", b"a value where a folder would be")
        place.backend.remove(["a/value"])
        assert place.backend.read("a") == b"a value where a folder would be"

    def test_what_is_not_there_is_not_stored(self, place: Place) -> None:
        backend = place.backend
        assert backend.names("nowhere") == []
        assert backend.folders("nowhere") == []
        assert backend.leftovers("nowhere") == []
        with pytest.raises(NotStored):
            backend.read("nowhere/value")

    def test_listings_are_sorted_and_whole_beyond_a_thousand(self, place: Place) -> None:
        """A thousand is the most that S3 answers at once, names and folders together."""
        backend = place.backend
        numbers = range(550)
        keys = [f"many/{n:012d}.parquet" for n in numbers] + [f"many/id={n}/x" for n in numbers]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda key: backend.create(key, b""), keys))
        assert backend.names("many") == [f"{n:012d}.parquet" for n in numbers]
        assert backend.folders("many") == sorted(f"id={n}" for n in numbers)

    def test_b4_leftovers_are_listed_apart_from_values(self, place: Place) -> None:
        backend = place.backend
        backend.create("a/value", b"bytes")
        backend.create("a/.tmp-value-1", b"by")
        assert backend.names("a") == ["value"]
        assert backend.leftovers("a") == [".tmp-value-1"]


class GrantsLeases:
    """Who may write, and what becomes of a dead owner's right."""

    def test_a_lease_is_taken_and_given_back(self, place: Place) -> None:
        lease = place.backend.acquire(KEY, this_process(NOW))
        assert (lease.owner, lease.took_over) == (this_process(NOW), None)
        lease.check()
        lease.release()
        lease.release()
        again = place.backend.acquire(KEY, this_process(NOW))
        assert again.took_over is None
        again.release()

    def test_a_process_cannot_take_it_twice(self, place: Place) -> None:
        lease = place.backend.acquire(KEY, this_process(NOW))
        with pytest.raises(RunLocked, match=f"run run-1 is held by process {os.getpid()} on host"):
            place.backend.acquire(KEY, this_process(NOW + timedelta(hours=1)))
        lease.check()
        lease.release()

    def test_a_living_owner_is_named_with_its_time(self, place: Place) -> None:
        holder = place.process(HOLDER)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunLocked) as caught:
            place.backend.acquire(KEY, this_process(NOW))
        assert f"run run-1 is held by process {holder.pid} on host " in str(caught.value)
        assert "since 2026-01-02 00:00:00 UTC" in str(caught.value)
        holder.communicate("")
        assert holder.returncode == 0
        lease = place.backend.acquire(KEY, this_process(NOW))
        assert lease.took_over is None
        lease.release()

    def test_the_lease_of_a_killed_process_is_taken_over_by_one_of_several(
        self, place: Place
    ) -> None:
        holder = place.process(HOLDER)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        takers = [place.process(TAKER) for _ in range(2)]
        for taker in takers:
            assert taker.stdout is not None
            assert taker.stdout.readline() == "ready\n"
        holder.kill()
        holder.communicate()
        for taker in takers:
            assert taker.stdin is not None
            taker.stdin.write("go\n")
            taker.stdin.flush()
        said = []
        for taker in takers:
            assert taker.stdout is not None
            said.append(taker.stdout.readline().strip())
        for taker in takers:
            taker.communicate("")
        assert sorted(said) == ["refused", "took over"]

    def test_the_lease_of_one_run_is_not_that_of_another(self, place: Place) -> None:
        one = place.backend.acquire(KEY, this_process(NOW))
        other = place.backend.acquire("leases/run-2", this_process(NOW))
        one.release()
        other.check()
        other.release()
