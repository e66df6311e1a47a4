"""Runs a search for the command line: where, under what, and what is said at its end."""

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from flows.interrupts import Interrupted
from flows.opening import store_of
from flows.prefect_shell import api, revealed
from flows.requests import ResumeRequest, TuneRequest
from flows.terminal import print_json, say
from schemas.errors import NothingLegal

if TYPE_CHECKING:
    from storage import State, Store

Request = TuneRequest | ResumeRequest


def run_search(request: Request, *, prefect: bool | None, as_json: bool) -> None:
    """Runs `request` and prints its result.

    Raises:
        NothingLegal: it ended without a recipe; artefacts are written all the same.
        Interrupted: said how to resume; the caller ends the process.
    """
    from flows.artefacts import write_artefacts

    store = store_of(request.store)
    keep_caches_under(store.root)
    try:
        with api(prefect, store.root / "prefect", say) as url:
            run_id = _run(request, under_prefect=url is not None)
    except Interrupted as stopped:
        say(
            f"interrupted; refold resume {stopped.run_id}{_store_option(request)} goes on from here"
        )
        raise
    state = _state(store, run_id)
    out_dir = write_artefacts(store, state, request.out_dir)
    _print_result(state, out_dir, as_json=as_json)


def _run(request: Request, *, under_prefect: bool) -> str:
    if under_prefect:
        from flows import prefect_flow

        with revealed():
            if isinstance(request, TuneRequest):
                return prefect_flow.tune(request)
            return prefect_flow.resume(request)
    from flows.progress import progress
    from flows.tune import resume, tune

    with progress() as listeners:
        if isinstance(request, TuneRequest):
            return tune(request, listeners=listeners)
        return resume(request, listeners=listeners)


def keep_caches_under(root: Path) -> None:
    """Points matplotlib's font cache below the store, so that nothing is written elsewhere."""
    os.environ.setdefault("MPLCONFIGDIR", str((root / "cache" / "matplotlib").absolute()))


def _state(store: "Store", run_id: str) -> "State":
    from storage import EventLog

    return EventLog.open(store, run_id).state()
