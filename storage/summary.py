"""One line about a run, for listings: kept up to date event by event, without the whole fold."""

from datetime import datetime
from typing import Any, Literal

from schemas.evaluation import SignatureHashes
from schemas.events import (
    Envelope,
    Event,
    RoundStarted,
    RunFinished,
    RunInterrupted,
    RunResumed,
    RunStarted,
    TrialProposed,
    TrialRejected,
    TrialScored,
)
from schemas.model import FrozenModel
from storage.ranking import eligible, rank

SUMMARY_VERSION = 1
"""Raised whenever `RunSummary` or `summarise` changes: older cached summaries are then rebuilt."""

RunStatus = Literal["empty", "open", "interrupted", "finished", "damaged"]


class RunSummary(FrozenModel):
    """What a listing shows of a run, as of its event `events - 1`.

    "open" is a run that has neither finished nor been asked to stop: it is being written (its
    lease says by whom) or was killed. `problem` says what is wrong with a "damaged" one.
    """

    run_id: str
    status: RunStatus = "empty"
    workload_name: str = ""
    cluster_name: str = ""
    workload_blob: str = ""
    cluster_blob: str = ""
    out_dir: str | None = None
    refold_version: str = ""
    signature: SignatureHashes | None = None
    started_at: datetime | None = None
    last_at: datetime | None = None
    events: int = 0
    rounds: int = 0
    proposed: int = 0
    rejected: int = 0
    scored: int = 0
    best_trial: int | None = None
    best_trial_id: str | None = None
    best_tokens_per_s_per_gpu: float | None = None
    why: str | None = None
    """Why the run finished or was interrupted."""
    problem: str | None = None


def summarise(summary: RunSummary, envelope: Envelope, event: Event) -> RunSummary:
    """`summary` after one more event."""
    update: dict[str, Any] = {"events": envelope.seq + 1, "last_at": envelope.at}
    match event:
        case RunStarted():
            update |= {
                "status": "open",
                "workload_name": event.workload_name,
                "cluster_name": event.cluster_name,
                "workload_blob": event.workload_blob,
                "cluster_blob": event.cluster_blob,
                "out_dir": event.out_dir,
                "refold_version": event.refold_version,
                "signature": event.signature,
                "started_at": envelope.at,
            }
        case RoundStarted():
            update["rounds"] = summary.rounds + 1
        case TrialProposed():
            update["proposed"] = summary.proposed + 1
        case TrialRejected():
            update["rejected"] = summary.rejected + 1
        case TrialScored():
            update["scored"] = summary.scored + 1
            update |= _best(summary, envelope, event)
        case RunInterrupted():
            update |= {"status": "interrupted", "why": event.why}
        case RunResumed():
            update |= {"status": "open", "why": None, "refold_version": event.refold_version}
        case RunFinished():
            update |= {"status": "finished", "why": event.why}
        case _:
            pass
    return summary.model_copy(update=update)


def _best(summary: RunSummary, envelope: Envelope, event: TrialScored) -> dict[str, Any]:
    """Same rule as the fold's incumbent: the most tokens/s/GPU, ties to the lower number."""
    score = eligible(event.evaluation)
    if score is None or envelope.trial is None:
        return {}
    if summary.best_tokens_per_s_per_gpu is not None and summary.best_trial is not None:
        best = rank(summary.best_trial, summary.best_tokens_per_s_per_gpu)
        if best < rank(envelope.trial, score):
            return {}
    return {
        "best_trial": envelope.trial,
        "best_trial_id": event.trial_id,
        "best_tokens_per_s_per_gpu": score,
    }
