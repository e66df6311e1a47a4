"""The hot columns: a few values of an event that queries over many runs need without its JSON.

They are derived, never a source: `storage.verify` re-derives each from the payload.
"""

from typing import NamedTuple

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
    match event:
        case TrialScored():
            return _of_evaluation(event.trial_id, event.evaluation)
        case TrialRejected():
            if event.evaluation is None:
                return HotColumns(trial_id=event.trial_id)
            return _of_evaluation(event.trial_id, event.evaluation)
        case TrialProposed() | TrialInvalidated():
            return HotColumns(trial_id=event.trial_id)
        case RunStarted():
            return _of_signature(event.signature)
        case RunForked():
            return _of_signature(event.spec.signature)
        case _:
            return NO_HOT_COLUMNS


def _of_signature(signature: SignatureHashes) -> HotColumns:
    return HotColumns(
        signature_model=signature.model,
        signature_cluster=signature.cluster,
        signature_stack=signature.stack,
    )


def _of_evaluation(trial_id: str, evaluation: Evaluation) -> HotColumns:
    return HotColumns(
        trial_id=trial_id,
        legal=evaluation.legal,
        fits=evaluation.fits,
        tokens_per_s_per_gpu=evaluation.tokens_per_s_per_gpu,
        memory_per_gpu_gb=evaluation.memory_per_gpu_gb,
        iteration_ms=evaluation.iteration_ms,
        source=evaluation.source,
        provenance=evaluation.provenance,
        signature_model=evaluation.signature.model,
        signature_cluster=evaluation.signature.cluster,
        signature_stack=evaluation.signature.stack,
    )
