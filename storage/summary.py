"""One line about a run, for listings: kept up to date event by event, without the whole fold."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from schemas.evaluation import SignatureHashes, Source
from schemas.events import (
    Envelope,
    Event,
    RoundStarted,
    RunFinished,
    RunForked,
    RunInterrupted,
    RunResumed,
    RunStarted,
    TrialInvalidated,
    TrialProposed,
    TrialRejected,
    TrialScored,
)
from schemas.model import FrozenModel
from storage.ranking import eligible, rank

SUMMARY_VERSION = 3
"""Raised whenever `RunSummary` or `summarise` changes: older cached summaries are then rebuilt."""

_COUNTED: dict[type[Any], str] = {
    TrialProposed: "proposed",
    TrialRejected: "rejected",
    TrialScored: "scored",
}
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
    source: Source | None = None
    """What was asked: with the signature and the memory regime it says what a score answers."""
    memory_regime: str | None = None
    started_at: datetime | None = None
    last_at: datetime | None = None
    events: int = 0
    rounds: int = 0
    proposed: int = 0
    rejected: int = 0
    scored: int = 0
    inherited_scores: int = 0
    """Of those, the ones a fork has from its parent."""
    best_trial: int | None = None
    best_trial_id: str | None = None
    best_tokens_per_s_per_gpu: float | None = None
    found_wrong: dict[str, datetime] = Field(default_factory=dict)
    """Configurations (trial ids) whose score was found wrong, and when."""
    why: str | None = None
    """Why the run finished or was interrupted."""
    problem: str | None = None
    parent: str | None = None
    """The run it was forked from."""
    parent_seq: int | None = None
    """The parent's last event that it shares."""


def summarise(summary: RunSummary, envelope: Envelope, event: Event) -> RunSummary:
    """`summary` after one more event."""
    update: dict[str, Any] = {"events": envelope.seq + 1, "last_at": envelope.at}
    match event:  # the most frequent first: each class that does not match costs time
        case TrialProposed():
            update["proposed"] = summary.proposed + 1
        case TrialRejected():
            update["rejected"] = summary.rejected + 1
        case TrialScored():
            update["scored"] = summary.scored + 1
            update |= _best(summary, envelope, event)
        case RunStarted():
            update |= _spec(event, envelope)
        case RunForked():
            update |= _spec(event.spec, envelope) | _fork(summary, envelope, event)
        case TrialInvalidated():
            update |= {
                "best_trial": event.incumbent,
                "best_trial_id": event.incumbent_trial_id,
                "best_tokens_per_s_per_gpu": event.incumbent_tokens_per_s_per_gpu,
                "found_wrong": {**summary.found_wrong, event.trial_id: envelope.at},
            }
        case RoundStarted():
            update["rounds"] = summary.rounds + 1
        case RunInterrupted():
            update |= {"status": "interrupted", "why": event.why}
        case RunResumed():
            update |= {"status": "open", "why": None, "refold_version": event.refold_version}
        case RunFinished():
            update |= {"status": "finished", "why": event.why}
        case _:
            pass
    return summary.model_copy(update=update)


class Summariser:
    """`summarise` over many events: those that only count are added up and entered together."""

    def __init__(self, run_id: str) -> None:
        self._summary = RunSummary(run_id=run_id)
        self._counted = dict.fromkeys(_COUNTED.values(), 0)
        self._last: Envelope | None = None

    def add(self, envelope: Envelope, event: Event) -> None:
        """One more event."""
        name = _COUNTED.get(type(event))
        if name is None or (
            isinstance(event, TrialScored) and _best(self._summary, envelope, event)
        ):
            self._summary = summarise(self.summary, envelope, event)
        else:
            self._counted[name] += 1
            self._last = envelope

    @property
    def summary(self) -> RunSummary:
        """Of the events so far."""
        if self._last is not None:
            known = self._summary
            update = {name: getattr(known, name) + n for name, n in self._counted.items()}
            update |= {"events": self._last.seq + 1, "last_at": self._last.at}
            self._summary = known.model_copy(update=update)
            self._counted = dict.fromkeys(self._counted, 0)
            self._last = None
        return self._summary


def _spec(spec: RunStarted, envelope: Envelope) -> dict[str, Any]:
    return {
        "status": "open",
        "workload_name": spec.workload_name,
        "cluster_name": spec.cluster_name,
        "workload_blob": spec.workload_blob,
        "cluster_blob": spec.cluster_blob,
        "out_dir": spec.out_dir,
        "refold_version": spec.refold_version,
        "signature": spec.signature,
        "source": spec.search.source,
        "memory_regime": spec.search.memory_regime,
        "started_at": envelope.at,
    }


def _fork(summary: RunSummary, envelope: Envelope, event: RunForked) -> dict[str, Any]:
    """A fork counts what it inherits as its own; one that does not inherit counts from nothing."""
    changes: dict[str, Any] = {
        "run_id": envelope.run_id,
        "why": None,
        "parent": event.parent,
        "parent_seq": event.parent_seq,
    }
    if event.inherits:
        return {
            **changes,
            "rejected": summary.rejected - len(event.reopened),
            "inherited_scores": summary.scored,
        }
    counts = ("rounds", "proposed", "rejected", "scored", "inherited_scores")
    best = ("best_trial", "best_trial_id", "best_tokens_per_s_per_gpu")
    return changes | dict.fromkeys(counts, 0) | dict.fromkeys(best) | {"found_wrong": {}}


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
