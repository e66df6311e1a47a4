"""Writes a run's artefacts: all of them read models, all of them byte-identical when repeated."""

from pathlib import Path

from flows.terminal import say
from schemas.errors import RunLocked
from storage import EventLog, State, Store, write_exports
from tasks.draw_trials import draw_trials
from tasks.picture import picture_of

PICTURE = "trials.png"


def write_artefacts(store: Store, state: State, out_dir: Path | None) -> Path:
    """Every artefact of `state` into `out_dir` (None: where the run was started with).

    Raises:
        LogError: the folder cannot be written.
    """
    folder = out_dir or Path(state.spec.out_dir or "tuning_runs")
    write_exports(state, folder, store=store)
    (folder / PICTURE).write_bytes(draw_trials(picture_of(state)))
    return folder


def export_run(store: Store, run_id: str, out_dir: Path | None) -> Path:
    """The artefacts of a run as of its last event, whose head is anchored first.

    A run that a live process is writing is exported as of what it has written so far.
    """
    try:
        with EventLog.open(store, run_id, writing=True) as log:
            log.anchor_head()
    except RunLocked as locked:
        say(f"{locked}; exporting what it has written so far")
    return write_artefacts(store, EventLog.open(store, run_id).state(), out_dir)
