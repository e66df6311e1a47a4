"""A search is the same search wherever its batches are scored: the log says nothing of where."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flows.requests import TuneRequest
from flows.tune import tune
from schemas.scoring import Scoring
from storage import EventLog, list_runs
from storage.codec import payload_of
from storage.reading import Record
from tests.end_to_end.cutting import but_export
from tests.end_to_end.searches import request_in
from tests.flows.command import refold
from tests.tasks.scoring.running import Clusters

SEEDS = 24


@pytest.fixture
def request_here(tmp_path: Path) -> TuneRequest:
    return request_in(tmp_path, seed_budget=SEEDS)


def decided(store: str | None, run_id: str) -> list[tuple[Any, ...]]:
    """Every event as the log has it, without when it was and in what order scores arrived."""
    assert store is not None
    records: Sequence[Record] = list(EventLog.open(Path(store), run_id).iterate())
    return sorted(
        (envelope.type, envelope.round or 0, envelope.trial or 0, payload_of(event))
        for envelope, event in records
    )


def inline(request: TuneRequest) -> list[tuple[Any, ...]]:
    """The same search, scored in this process, in a store that knows no evaluation."""
    asked = request.model_copy(update={"store": f"{request.store}-inline"})
    return decided(asked.store, tune(asked, stage=but_export))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["processes", "dask"])
def test_the_log_of_a_search_does_not_say_what_scored_it(
    engine: str, request_here: TuneRequest, tmp_path: Path
):
    expected = inline(request_here)
    done = refold(
        *("tune", "--workload", request_here.workload),
        *("--target-cluster", request_here.target_cluster, "--out-dir", tmp_path / "out"),
        *("--store", request_here.store, "--seed-only", "--gemm-backend", "tile"),
        *("--seed-budget", SEEDS, "--scoring", engine, "--workers", 2, "--no-prefect"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert ("scoring on a Dask cluster" in done.stderr) == (engine == "dask")
    (run,) = list_runs(tmp_path / "store")
    assert decided(request_here.store, run.run_id) == expected


@pytest.mark.slow
def test_a_process_that_is_on_ray_scores_there_and_stays_on_it(
    clusters: Clusters, request_here: TuneRequest, capsys: pytest.CaptureFixture[str]
):
    clusters["ray"].start()
    import ray  # once it has its token

    on_ray = request_here.model_copy(update={"scoring": Scoring(engine="ray")})
    run_id = tune(on_ray, stage=but_export)
    assert "scoring on Ray at the address this process is connected to" in capsys.readouterr().err
    assert decided(on_ray.store, run_id) == inline(request_here)
    assert ray.is_initialized()


def test_an_engine_that_cannot_be_had_is_refused_before_there_is_a_run(
    request_here: TuneRequest, tmp_path: Path
):
    done = refold(
        *("tune", "--workload", request_here.workload, "--no-prefect"),
        *("--target-cluster", request_here.target_cluster, "--store", request_here.store),
        *("--seed-only", "--scoring", "ray", "--scoring-address", "127.0.0.1:9"),
        cwd=tmp_path,
    )
    assert done.returncode == 3
    assert "Ray at 127.0.0.1:9 cannot be used: Connection refused" in done.stderr
    assert list_runs(tmp_path / "store") == []
