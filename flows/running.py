"""Runs a search for the command line: where, under what, and what is said at its end."""

import json
import os
from typing import TYPE_CHECKING

from flows.artefacts import closing_text, out_dir_of_run, workload_of
from flows.opening import store_of
from flows.prefect_shell import api, revealed
from flows.requests import ForkRequest, NightRequest, ResumeRequest, TuneRequest
from flows.terminal import print_json, say
from schemas.errors import NothingLegal
from storage import EventLog
from storage.exports.ledger import summary_json

if TYPE_CHECKING:
    from flows.nightly import Done

Request = TuneRequest | ResumeRequest | ForkRequest


def run_search(request: Request, *, prefect: bool | None, as_json: bool) -> None:
    """Runs `request` and prints its result.

    Raises:
        NothingLegal: it ended without a recipe; artefacts are written all the same.
        KeyboardInterrupt: it was interrupted, and has said how to resume.
    """
    store = store_of(request.store)
    with api(prefect, store.local_folder(os.environ) / "prefect", say) as url:
        run_id = _run(request, under_prefect=url is not None)
    log = EventLog.open(store, run_id)
    state = log.state()
    workload = workload_of(log, state)
    if as_json:
        print_json(json.loads(summary_json(state, workload)))
    else:
        print(closing_text(state, workload))
        print(f"artefacts are in {out_dir_of_run(state, request.out_dir)}")
    if state.finished is not None and state.best is None:
        why = state.finished.binding_constraints or ("what did was invalidated",)
        raise NothingLegal(
            f"nothing legal fits: {why[0]}",
            hint=f"refold show {run_id} lists every candidate and why it was rejected",
        )


def do_night(request: NightRequest, *, prefect: bool | None) -> "Done":
    """Does a night, or what is left of it.

    Raises:
        KeyboardInterrupt: it was interrupted, and has said how to go on.
    """
    from flows.nightly import run_night
    from flows.progress import progress

    store = store_of(request.store)
    with api(prefect, store.local_folder(os.environ) / "prefect", say) as url:
        try:
            if url is not None:
                from flows import prefect_flow

                with revealed():
                    return prefect_flow.nightly(request)
            with progress(request.store) as listeners:
                return run_night(request, listeners=listeners)
        except KeyboardInterrupt:
            say("the same command goes on with this night")
            raise


def _run(request: Request, *, under_prefect: bool) -> str:
    if under_prefect:
        from flows import prefect_flow

        with revealed():
            if isinstance(request, TuneRequest):
                return prefect_flow.tune(request)
            if isinstance(request, ForkRequest):
                return prefect_flow.fork(request)
            return prefect_flow.resume(request)
    from flows.forking import fork
    from flows.progress import progress
    from flows.tune import resume, tune

    with progress(request.store) as listeners:
        if isinstance(request, TuneRequest):
            return tune(request, listeners=listeners)
        if isinstance(request, ForkRequest):
            return fork(request, listeners=listeners)
        return resume(request, listeners=listeners)
