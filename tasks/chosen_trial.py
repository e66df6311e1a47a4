"""Which trial of a run is meant: the one named, or the best."""

from schemas.errors import UserError
from storage import State
from storage.state import Trial


def chosen_trial(state: State, run_id: str, number: int | None, *, verb: str) -> Trial:
    """Trial `number` of what a run knows; None: its best. `verb` is who asks, for the hint.

    Raises:
        UserError: there is no such trial, or none is the best.
    """
    when = f"as of event {state.head_seq}"
    if number is None:
        if state.best is None:
            raise UserError(
                f"run {run_id} has no recipe {when}: no trial is legal, fits and is timed",
                hint=f"refold {verb} {run_id} --trial N tells of any trial",
            )
        return state.best
    if number not in state.trials:
        there = f"0 to {max(state.trials)}" if state.trials else "none yet"
        raise UserError(f"run {run_id} has no trial {number} {when}; it has {there}")
    return state.trials[number]
