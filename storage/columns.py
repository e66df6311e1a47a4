"""The hot columns: a few values of an event that queries over many runs need without its JSON.

They are derived, never a source: `storage.verify` re-derives each from the payload.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from schemas.evaluation import Evaluation, SignatureHashes
from schemas.events import (
    Event,
    RunForked,
    RunStarted,
    TrialInvalidated,
    TrialProposed,
    TrialRejected,
    TrialScored,
)


class HotColumns(NamedTuple):
    """One event's hot columns; None where a column does not apply.

    `memory_per_gpu_gb` is in 2^30 bytes, `iteration_ms` in milliseconds, `tokens_per_s_per_gpu`
    in tokens per second.
    """

    trial_id: str | None = None
    legal: bool | None = None
    fits: bool | None = None
    tokens_per_s_per_gpu: float | None = None
    memory_per_gpu_gb: float | None = None
    iteration_ms: float | None = None
    source: str | None = None
    provenance: str | None = None
    signature_model: str | None = None
    signature_cluster: str | None = None
    signature_stack: str | None = None


NO_HOT_COLUMNS = HotColumns()


def hot_columns(event: Event) -> HotColumns:
    """The hot columns of `event`."""
    derive = _DERIVED.get(type(event))
    return NO_HOT_COLUMNS if derive is None else derive(event)


def _of_score(event: TrialScored) -> HotColumns:
    return _of_evaluation(event.trial_id, event.evaluation)


def _of_rejection(event: TrialRejected) -> HotColumns:
    if event.evaluation is None:
        return HotColumns(event.trial_id)
    return _of_evaluation(event.trial_id, event.evaluation)


def _of_proposal(event: TrialProposed) -> HotColumns:
    return HotColumns(event.trial_id)


def _of_invalidation(event: TrialInvalidated) -> HotColumns:
    return HotColumns(event.trial_id)


def _of_start(event: RunStarted) -> HotColumns:
    return _of_signature(event.signature)


def _of_fork(event: RunForked) -> HotColumns:
    return _of_signature(event.spec.signature)


def _of_signature(signature: SignatureHashes) -> HotColumns:
    return HotColumns(
        signature_model=signature.model,
        signature_cluster=signature.cluster,
        signature_stack=signature.stack,
    )


def _of_evaluation(trial_id: str, evaluation: Evaluation) -> HotColumns:
    signature = evaluation.signature
    return HotColumns(  # by position: this runs for every verdict read
        trial_id,
        evaluation.legal,
        evaluation.fits,
        evaluation.tokens_per_s_per_gpu,
        evaluation.memory_per_gpu_gb,
        evaluation.iteration_ms,
        evaluation.source,
        evaluation.provenance,
        signature.model,
        signature.cluster,
        signature.stack,
    )


_DERIVED: dict[type[Event], Callable[[Any], HotColumns]] = {
    TrialScored: _of_score,
    TrialRejected: _of_rejection,
    TrialProposed: _of_proposal,
    TrialInvalidated: _of_invalidation,
    RunStarted: _of_start,
    RunForked: _of_fork,
}
