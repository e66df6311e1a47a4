"""Each backend, put through the same tests."""

from pathlib import Path

import pytest

from tests.storage.backends.conformance import GrantsLeases, StoresValues
from tests.storage.backends.log_conformance import CarriesLogs
from tests.storage.backends.places import Place

pytestmark = pytest.mark.whole


class TestLocalDisk(StoresValues, GrantsLeases, CarriesLogs):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return Place(str(tmp_path / "store"))


class TestS3(StoresValues, GrantsLeases, CarriesLogs):
    @pytest.fixture
    def place(self, s3_store: str) -> Place:
        return Place(s3_store)
