"""`gs://` and `az://`: the client's requests mean to those services what they mean to S3.

Of the conformance suite, what goes over the wire differently; the rest is the same code.
"""

from collections.abc import Iterator

import pytest

from tests.storage.backends.conformance import GrantsLeases, StoresValues
from tests.storage.backends.google_and_azure import Azure, Google, Running, Service
from tests.storage.backends.log_conformance import CarriesLogs
from tests.storage.backends.places import Place

pytestmark = pytest.mark.whole

TESTS = [
    StoresValues.test_b1_a_created_value_reads_back,
    StoresValues.test_b1_an_empty_value_is_a_value,
    StoresValues.test_b2_a_taken_key_is_refused_and_keeps_its_value,
    StoresValues.test_b2_of_many_threads_one_wins,
    StoresValues.test_a_value_is_replaced_whole,
    StoresValues.test_a_value_moves,
    StoresValues.test_a_removed_key_is_free_again,
    StoresValues.test_many_keys_are_removed_at_once_whether_they_are_there_or_not,
    StoresValues.test_what_is_not_there_is_not_stored,
    StoresValues.test_b4_leftovers_are_listed_apart_from_values,
    GrantsLeases.test_a_lease_is_taken_and_given_back,
    GrantsLeases.test_a_process_cannot_take_it_twice,
    CarriesLogs.test_a_compacted_run_is_one_segment_reads_the_same_and_goes_on,
]


@pytest.fixture(params=[Google, Azure], ids=["google", "azure"])
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    service: type[Service] = request.param
    running = Running(service)
    for name, value in running.environment.items():
        monkeypatch.setenv(name, value)
    yield Place(running.store)
    running.stop()


@pytest.mark.parametrize("test", TESTS, ids=lambda test: test.__name__)
def test_it_conforms(test: object, place: Place) -> None:
    owner = next(c for c in (StoresValues, GrantsLeases, CarriesLogs) if test in vars(c).values())
    test(owner(), place)  # type: ignore[operator]
