"""Searches of Mixtral 8x22B on four nodes of MI355X, in a folder of a test's own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from flows.requests import TuneRequest
from flows.tune import tune
from storage import EventLog
from tests.end_to_end.cutting import but_export
from tests.end_to_end.files import write_inputs
from tests.end_to_end.made_once import Uninterrupted


def request_in(
    folder: Path, *, budget: dict[str, Any] | None = None, **changes: Any
) -> TuneRequest:
    """A search with its files, store and artefacts in `folder`, by the seed plan alone.

    `budget` goes into the cluster file; `changes` are over the request's own fields.
    """
    folder.mkdir(exist_ok=True)
    sections = {} if budget is None else {"optimization": {"budget": budget}}
    workload, cluster = write_inputs(folder, **sections)
    fields: dict[str, Any] = {
        "workload": workload,
        "target_cluster": cluster,
        "store": str(folder / "store"),
        "out_dir": folder / "out",
        "gemm_backend": "tile",
        "seed_only": True,
    }
    return TuneRequest(**fields | changes)


def searched(request: TuneRequest, stage: Callable[..., Any] = but_export) -> Uninterrupted:
    """The search, run to its end; without its artefacts unless `stage` makes them."""
    run_id = tune(request, stage=stage)
    assert request.store is not None
    log = EventLog.open(Path(request.store), run_id)
    return Uninterrupted(request, Path(request.store), run_id, tuple(log.iterate()), log.state())
