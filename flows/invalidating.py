"""Invalidation: a recorded score that was found wrong stays on record and can no longer win."""

from flows.opening import inputs_of_run
from schemas.errors import UserError
from schemas.events import TrialInvalidated
from storage import Entry, EventLog, State, Store
from storage.state import Trial

AUTHOR = "command line"
"""Who says so. Not the user's name: a log that is handed on would carry it."""


def invalidate(store: Store, run_id: str, number: int, why: str) -> State:
    """Records that the score of trial `number` is wrong; returns what the run knows then.

    The score also leaves the evaluation cache, so that no later run is answered with it.

    Raises:
        UserError: there is no such trial, it has no score, it is invalidated already, or `why` says
            nothing.
        RunLocked: a live process is writing the run.
        DamagedLog: the run does not verify.
    """
    if not why.strip():
        raise UserError("--why is empty: say what is wrong with the score")
    if not _is_text(why):
        raise UserError("--why is not text in this locale's encoding, and a run records it")
    secrets = inputs_of_run(store, run_id).secrets()
    _scored_trial(EventLog.open(store, run_id).state(), number)  # before anything is touched
    with EventLog.open(store, run_id, writing=True, secrets=secrets) as log:
        state = log.state()
        trial = _scored_trial(state, number)
        log.append([Entry(_correction(state, trial, why), trial.round, number)], log.next_seq)
        if state.finished is not None:
            log.compact()
        else:
            log.anchor_head()
        assert trial.scored is not None, "only a scored trial is invalidated"
        store.evaluations.forget(trial.scored.evaluation)
        return log.state()


def _is_text(why: str) -> bool:
    try:
        why.encode()
    except UnicodeEncodeError:
        return False
    return True


def _scored_trial(state: State, number: int) -> Trial:
    trial = state.trials.get(number)
    listed = f"refold show {state.run_id} lists its trials"
    if trial is None:
        raise UserError(f"run {state.run_id} has no trial {number}", hint=listed)
    if trial.scored is None:
        raise UserError(
            f"trial {number} of run {state.run_id} has no score to invalidate: it is"
            f" {'in flight' if trial.rejected is None else f'rejected, {trial.rejected.code}'}",
            hint=listed,
        )
    if trial.invalidated is not None:
        raise UserError(
            f"trial {number} of run {state.run_id} is invalidated already: {trial.invalidated.why}"
        )
    return trial


def _correction(state: State, trial: Trial, why: str) -> TrialInvalidated:
    best = next((other for other in state.ranked() if other is not trial), None)
    return TrialInvalidated(
        trial_id=trial.proposed.trial_id,
        why=" ".join(why.split()),
        author=AUTHOR,
        incumbent=None if best is None else best.number,
        incumbent_trial_id=None if best is None else best.proposed.trial_id,
        incumbent_tokens_per_s_per_gpu=None if best is None else best.score,
    )
