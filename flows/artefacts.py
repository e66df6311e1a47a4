"""Writes a run's artefacts: all of them read models, all of them byte-identical when repeated."""

import os
from functools import partial
from pathlib import Path

from flows.out_dir import is_disk_trouble
from flows.terminal import say
from projection.legality.derived import derived_settings
from schemas.errors import EnvironmentMissing, RunLocked, UserError
from schemas.workload import Workload
from storage import EventLog, State, Store, write_exports
from storage.exports.files import write_file
from storage.exports.printed import printed_result
from storage.heads import read_anchor
from tasks.draw_trials import draw_trials
from tasks.picture import picture_of

PICTURE = "trials.png"
UNANCHORED = "no head is anchored: a deleted tail would go unseen"


def write_artefacts(state: State, workload: Workload, out_dir: Path | None) -> Path:
    """Every artefact of `state` into `out_dir` (None: where the run was started with).

    Raises:
        UserError: the folder cannot be written.
        EnvironmentMissing: its disk is full or read-only.
    """
    folder = out_dir_of_run(state, out_dir)
    try:
        write_exports(state, workload, folder, derived=partial(derived_settings, workload=workload))
        write_file(folder / PICTURE, draw_trials(picture_of(state)))
    except UserError as error:
        cause = error.__cause__
        if not isinstance(cause, OSError) or not is_disk_trouble(cause):
            raise
        raise EnvironmentMissing(
            str(error), hint=f"make room, then: refold export {state.run_id}"
        ) from cause
    return folder


def keep_caches_under(store: Store) -> None:
    """Points matplotlib's font cache below the store's local folder."""
    cache = store.local_folder(os.environ) / "cache" / "matplotlib"
    os.environ.setdefault("MPLCONFIGDIR", str(cache.absolute()))


def out_dir_of_run(state: State, out_dir: Path | None) -> Path:
    """Where a run's artefacts go: `out_dir`, or where the run was started with."""
    return out_dir or Path(state.spec.out_dir or "tuning_runs")


def closing_text(state: State, workload: Workload) -> str:
    """The best configuration and its exports, or what stood in the way of any."""
    best = state.best
    derived = None if best is None else derived_settings(best.proposed.config, workload)
    return printed_result(state, workload, derived)


def workload_of(log: EventLog, state: State) -> Workload:
    """The workload a run was started with, from its blob.

    Raises:
        DamagedLog: it is missing or changed.
    """
    return Workload.model_validate_json(log.get_blob(state.spec.workload_blob))


def warn_if_unanchored(store: Store, run_id: str) -> None:
    """Says what `verify` warns of, for verbs that read a run without verifying it."""
    if read_anchor(store.backend, run_id) is None:
        say(f"warning: run {run_id}: {UNANCHORED}")


def export_run(store: Store, run_id: str, out_dir: Path | None) -> Path:
    """The artefacts of a run as of its last event, whose head is anchored first.

    A run that a live process is writing is exported as of what it has written so far.
    """
    warn_if_unanchored(store, run_id)  # before it is anchored again
    try:
        with EventLog.open(store, run_id, writing=True) as log:
            log.anchor_head()
    except RunLocked as locked:
        say(f"{locked}; exporting what it has written so far")
    keep_caches_under(store)
    log = EventLog.open(store, run_id)
    state = log.state()
    return write_artefacts(state, workload_of(log, state), out_dir)
