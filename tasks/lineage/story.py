"""The story of one trial: who proposed it and why, what was said of it, where it was carried from.

A fork that asks another question proposes its parent's candidates again; the story then goes on in
the parent, as far up as it was carried.
"""

from collections.abc import Sequence
from typing import NamedTuple

from schemas.evaluation import Evaluation
from schemas.events import Envelope, TrialInvalidated, TrialRejected, TrialScored
from schemas.lineage import (
    Correction,
    ProposingCall,
    Recalled,
    RecordedEvaluation,
    TrialStory,
)
from schemas.workload import Workload
from storage.appearances import is_verdict_on
from storage.blobs import find_blob, read_blob
from storage.evaluation_cache import identity_of
from storage.exports.knobs import changed_knobs
from storage.fork_steps import place_of
from storage.reading import Record
from storage.state import State, Trial
from storage.store import Store
from tasks.carry import KNOWN_BEST, carried_from
from tasks.lineage.generations import Generation
from tasks.lineage.mentions import mentions_of


class Sources(NamedTuple):
    """What stories are made from."""

    store: Store
    runs: Sequence[str]
    """The lineage, the asked run first."""
    records: Sequence[Record]
    """The lineage's events, as of the asked one."""
    elsewhere: Sequence[Record]
    """Verdicts on the configuration in events outside the lineage, known at the asked event."""


def story_of(number: int, generations: Sequence[Generation], sources: Sources) -> TrialStory:
    """The story of trial `number` of the last of `generations`."""
    *above, here = generations
    state = here.state
    trial = state.trials[number]
    known = carried_from(trial, state.carried)
    current = next(r for r in state.rounds if r.number == trial.round)
    blob = find_blob(sources.store.backend, sources.runs, state.spec.workload_blob)
    return TrialStory(
        place=place_of(here.proposals[number]),
        trial=number,
        trial_id=trial.proposed.trial_id,
        tag=trial.proposed.tag,
        rule=trial.proposed.rule,
        why=trial.proposed.why,
        round=trial.round,
        proposer=current.started.proposer,
        planned=current.started.planned,
        status=trial.status,
        invalidated=trial.invalidated is not None,
        requested=trial.proposed.requested,
        config=trial.proposed.config,
        changed=changed_knobs(trial.proposed.config, Workload.model_validate_json(blob)),
        call=_call(trial, here, sources.store),
        evaluation=trial.evaluation,
        evaluations=_evaluations(trial, sources),
        mentions=mentions_of(trial, state),
        corrections=_corrections(trial, sources),
        carried_from=None if known is None else story_of(known.number, above, sources),
        recalled_from=_recalled_from(trial, state),
    )


def _recalled_from(trial: Trial, state: State) -> Recalled | None:
    recalled = state.recalled
    if recalled is None or trial.proposed.rule != KNOWN_BEST:
        return None
    return Recalled(
        run_id=recalled.run,
        trial=recalled.trial,
        tokens_per_s_per_gpu=recalled.tokens_per_s_per_gpu,
        scored_at=recalled.scored_at,
    )


def configurations(number: int, generations: Sequence[Generation]) -> frozenset[str]:
    """Ids of the configurations that a story is about: the trial's, and those of the trials it was
    carried from."""
    *above, here = generations
    trial = here.state.trials[number]
    known = carried_from(trial, here.state.carried)
    mine = frozenset({trial.proposed.trial_id})
    return mine if known is None else mine | configurations(known.number, above)


def _call(trial: Trial, here: Generation, store: Store) -> ProposingCall | None:
    if trial.proposed.call is None:
        return None
    envelope = here.calls[trial.proposed.call]
    event = here.state.calls[trial.proposed.call].event

    def text(digest: str) -> str:
        return read_blob(store.backend, envelope.run_id, digest).decode(errors="replace")

    return ProposingCall(
        place=place_of(envelope),
        call=event.call,
        role=event.role,
        model=event.model,
        prompt_hash=event.prompt_hash,
        request_sha256=event.request_blob,
        request=text(event.request_blob),
        answer_sha256=event.answer_blob,
        answer=None if event.answer_blob is None else text(event.answer_blob),
        input_tokens=event.input_tokens,
        output_tokens=event.output_tokens,
        cost_usd=event.cost_usd,
        latency_ms=event.latency_ms,
    )


def _verdicts(trial: Trial, sources: Sources) -> list[tuple[Record, bool]]:
    """Events about the configuration by time, each with whether it is of the lineage."""
    asked = (trial.proposed.trial_id,)
    found = [(r, True) for r in sources.records if is_verdict_on(r, asked)]
    found += [(r, False) for r in sources.elsewhere if is_verdict_on(r, asked)]
    return sorted(found, key=lambda pair: (pair[0].envelope.at, pair[0].envelope.seq))


def _evaluations(trial: Trial, sources: Sources) -> tuple[RecordedEvaluation, ...]:
    return tuple(
        _recorded(record.envelope, record.event, trial.evaluation, in_lineage=mine)
        for record, mine in _verdicts(trial, sources)
        if isinstance(record.event, TrialScored | TrialRejected)
    )


def _recorded(
    envelope: Envelope,
    event: TrialScored | TrialRejected,
    own: Evaluation | None,
    *,
    in_lineage: bool,
) -> RecordedEvaluation:
    found = event.evaluation
    assert envelope.trial is not None, "a verdict names its trial"
    return RecordedEvaluation(
        place=place_of(envelope),
        trial=envelope.trial,
        verdict="scored" if isinstance(event, TrialScored) else "rejected",
        code=event.code if isinstance(event, TrialRejected) else None,
        from_cache=isinstance(event, TrialScored) and event.from_cache,
        in_lineage=in_lineage,
        same_question=(
            found is not None and own is not None and identity_of(found) == identity_of(own)
        ),
        source=None if found is None else found.source,
        provenance=None if found is None else found.provenance,
        signature=None if found is None else found.signature,
        tokens_per_s_per_gpu=None if found is None else found.tokens_per_s_per_gpu,
        memory_per_gpu_gb=None if found is None else found.memory_per_gpu_gb,
        cap_gb=None if found is None else found.cap_gb,
        fits=None if found is None else found.fits,
    )


def _corrections(trial: Trial, sources: Sources) -> tuple[Correction, ...]:
    found = []
    for (envelope, event), mine in _verdicts(trial, sources):
        if isinstance(event, TrialInvalidated) and envelope.trial is not None:
            found.append(
                Correction(
                    place=place_of(envelope),
                    trial=envelope.trial,
                    why=event.why,
                    author=event.author,
                    in_lineage=mine,
                )
            )
    return tuple(found)
