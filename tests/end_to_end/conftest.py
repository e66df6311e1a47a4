"""One search that ran to its end, for every test that compares with it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from flows.requests import TuneRequest
from flows.tune import tune
from storage import EventLog, State
from storage.reading import Record
from tests.end_to_end.files import write_inputs


@dataclass(frozen=True)
class Uninterrupted:
    """A finished run in a store of its own, which tests only read."""

    request: TuneRequest
    store: Path
    run_id: str
    records: tuple[Record, ...]
    state: State


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Uninterrupted]:
    folder = tmp_path_factory.mktemp("uninterrupted")
    workload, cluster = write_inputs(folder)
    request = TuneRequest(
        workload=workload,
        target_cluster=cluster,
        store=str(folder / "store"),
        out_dir=folder / "out",
        gemm_backend="tile",
        seed_budget=24,
    )
    run_id = tune(request)
    log = EventLog.open(folder / "store", run_id)
    yield Uninterrupted(request, folder / "store", run_id, tuple(log.iterate()), log.state())
