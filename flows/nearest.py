"""What a store knows that is nearest to a question nobody has asked it: where, and what differs."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from flows.differences import Difference, signature_differences
from projection.signature import WORKLOAD_IDENTITY
from schemas.errors import LogError, RunNotFound
from schemas.evaluation import SignatureHashes
from storage import EventLog, RunSummary, Store
from storage.recipes import Question, spec_of_run
from tasks.inputs import Inputs

PARTS = ("model", "cluster", "stack")
_LIKENESS: tuple[set[str], ...] = (
    {"model", "cluster", "stack"},
    {"model", "cluster"},
    {"model", "stack"},
    {"model"},
    {"cluster", "stack"},
    {"cluster"},
    {"stack"},
    set(),
)
"""Which parts of a signature are shared, the nearest first."""
MOST_LOOKED_INTO = 30
"""Signatures whose parts are compared value by value: those that share most, the newest of them."""


class Near(NamedTuple):
    """One question that was asked, and how it differs from ours."""

    best: RunSummary
    """The run with its best score; the newest, where none has one."""
    runs: int
    shared: tuple[str, ...]
    """Parts of the signature that are the same."""
    differences: tuple[Difference, ...]
    """From theirs to ours."""


def nearest(
    store: Store, runs: Iterable[RunSummary], inputs: Inputs, question: Question, *, limit: int = 5
) -> list[Near]:
    """The questions asked in a store that are most like `question`, the most alike first.

    By the parts of the signature they share; then those that asked for the same (mode, memory
    regime); then by how few values differ; then the newest.
    """
    groups: dict[tuple[object, ...], list[RunSummary]] = {}
    for run in runs:
        if run.signature is None or run.problem is not None or question.is_asked_by(run):
            continue
        groups.setdefault((run.signature, run.source, run.memory_regime), []).append(run)
    alike = sorted(groups.values(), key=lambda group: group[-1].run_id, reverse=True)
    alike.sort(key=lambda group: _likeness(group[0], question))
    found = [_near(store, group, inputs, question) for group in alike[:MOST_LOOKED_INTO]]
    found.sort(key=lambda near: (_likeness(near.best, question), len(near.differences)))
    return [_in_the_workload_s_words(store, near, inputs) for near in found[:limit]]


def _likeness(run: RunSummary, question: Question) -> tuple[int, int]:
    asked = (run.source != question.source) + (run.memory_regime != question.memory_regime)
    return _LIKENESS.index(set(_shared(run, question.signature))), asked


def _shared(run: RunSummary, signature: SignatureHashes) -> tuple[str, ...]:
    return tuple(p for p in PARTS if getattr(run.signature, p) == getattr(signature, p))


def _near(store: Store, group: list[RunSummary], inputs: Inputs, question: Question) -> Near:
    scored = [run for run in group if run.best_tokens_per_s_per_gpu is not None]
    best = max(scored, key=lambda run: run.best_tokens_per_s_per_gpu or 0.0, default=group[-1])
    shared = _shared(best, question.signature)
    asked = [
        Difference(name, theirs, ours)
        for name, theirs, ours in (
            ("source", best.source, question.source),
            ("memory regime", best.memory_regime, question.memory_regime),
        )
        if theirs != ours
    ]
    try:
        parts: Mapping[str, Any] = spec_of_run(store.backend, best.run_id).signature_parts
    except (LogError, RunNotFound):  # damaged since it was summarised: its hashes are all there is
        parts = best.signature.model_dump() if best.signature else {}
    ours = inputs.signature.model_dump(mode="json")
    apart = signature_differences(
        {p: parts.get(p) for p in PARTS if p not in shared},
        {p: ours[p] for p in PARTS if p not in shared},
    )
    return Near(best, len(group), shared, (*asked, *apart))


def _in_the_workload_s_words(store: Store, near: Near, inputs: Inputs) -> Near:
    """The signature has a hash for a workload's own settings: what differs in those, by name."""
    if all(difference.path != "model.workload" for difference in near.differences):
        return near
    try:
        log = EventLog.open(store, near.best.run_id)
        blob = spec_of_run(store.backend, near.best.run_id).workload_blob
        theirs = json.loads(log.get_blob(blob))
    except (LogError, RunNotFound):
        return near
    ours = inputs.workload.model_dump(mode="json")
    named = signature_differences(
        {"workload": {k: v for k, v in theirs.items() if k not in WORKLOAD_IDENTITY}},
        {"workload": {k: v for k, v in ours.items() if k not in WORKLOAD_IDENTITY}},
    )
    rest = [d for d in near.differences if d.path != "model.workload"]
    return near._replace(differences=(*named, *rest))
