"""Runs that end early, as if their process had died, and what two runs are compared by."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from storage import Entry, EventLog, State
from storage.layout import blobs_prefix
from tests.end_to_end.made_once import Uninterrupted


def but_export(name: str, step: Callable[..., Any], *args: Any) -> Any:
    """Runs every stage but the last, which only draws files from the log."""
    return None if name == "export" else step(*args)


def cut(whole: Uninterrupted, events: int, store: Path, *, blobs_of: str | None = None) -> None:
    """The first `events` events of a run, in a store where the rest never happened.

    `blobs_of`: the run whose blobs `whole.store` holds, if it is not called as this one.
    """
    blobs = whole.store / blobs_prefix(blobs_of or whole.run_id)
    shutil.copytree(blobs, store / blobs_prefix(whole.run_id))
    with EventLog.create(store, whole.run_id) as log:
        kept = whole.records[:events]
        log.append([Entry(event, at.round, at.trial) for at, event in kept], expected_seq=0)


def decided(state: State) -> dict[int, Any]:
    """What became of each trial, without when or from where."""
    return {
        number: (
            trial.proposed,
            trial.rejected,
            trial.scored and trial.scored.evaluation,
        )
        for number, trial in state.trials.items()
    }
