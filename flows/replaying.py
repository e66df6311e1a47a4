"""Replay: the state a run had at some event, and whether its decisions are made again, the same."""

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from flows.differences import fork_differences
from flows.forking import given_up
from flows.llm_access import Models
from flows.opening import inputs_of_spec, refold_version
from flows.rehearsal import Divergence, RecordEnds, Rehearsal, comparable
from flows.tune import search
from projection import PROJECTION_VERSION
from schemas.errors import DamagedLog
from schemas.evaluation import Evaluation
from schemas.events import Event, RunForked, RunStarted
from schemas.model import FrozenModel
from storage import Entry, EventLog, State, Store, fold_records
from storage.codec import payload_of
from storage.evaluation_cache import EvaluationCache, Lookup, ResultIdentity
from storage.reading import Record
from tasks.inputs import Inputs
from tasks.scoring import Scorer


class Versions(FrozenModel):
    """Under what a decision was made."""

    refold: str
    projection: str
    stack: dict[str, Any]
    """GEMM model, calibration and declared software, as in the signature."""


class DifferentEvent(FrozenModel):
    """The first event that is not decided again as it was."""

    run_id: str
    seq: int
    type: str
    trial: int | None
    path: str
    """The first value of it that differs; empty: one side has no such event."""
    recorded: Any
    now: Any
    recorded_under: Versions
    now_under: Versions


class ReplayReport(FrozenModel):
    """The outcome of making every decision of a run again."""

    run_id: str
    events: int
    reproduced: int
    """Events decided again, the same."""
    by_type: dict[str, int]
    """Of those, how many of each type."""
    recorded_inputs: int
    """Events no step decides: resumptions, interruptions, recoveries, corrections."""
    finished: bool
    different: DifferentEvent | None = None

    @property
    def identical(self) -> bool:
        """Every decision was made again, the same."""
        return self.different is None


class _NothingKnown(EvaluationCache):
    """A cache that makes every evaluation be made again."""

    def __init__(self) -> None:
        pass

    def find(self, identity: ResultIdentity) -> Lookup:  # noqa: ARG002
        return Lookup(None)

    def put(self, evaluation: Evaluation) -> str | None:  # noqa: ARG002
        return None


def verify_replay(store: Store, run_id: str) -> ReplayReport:
    """Makes every decision of a run again, from its recorded inputs, and compares event by event.

    A fork's inherited events are decided again under the parent's spec. What no step decides is
    taken from the record: the resolved workload and cluster, the clock, the order in which scores
    arrived, resumptions and corrections.

    Raises:
        RunNotFound, DamagedLog: the run cannot be read.
    """
    log = EventLog.open(store, run_id)
    events = list(log.iterate())
    reproduced: list[Record] = []
    inputs_seen = 0
    known: State | None = None
    different = None
    for stretch in _stretches(events):
        first, *rest = stretch
        inputs = inputs_of_spec(log, _spec(first.event))
        different = _first_differs(log, first, known, inputs)
        if different is not None:
            break
        known = fold_records([first], known)
        rehearsal = Rehearsal(known, rest, log.get_blob)
        different = _rehearse(rehearsal, inputs, first)
        known = rehearsal.state
        inputs_seen += rehearsal.recorded_inputs
        reproduced += [first, *rehearsal.compared]
        if different is not None:
            break
    types = [record.event.type for record in reproduced]
    return ReplayReport(
        run_id=run_id,
        events=len(events),
        reproduced=len(reproduced),
        by_type={name: types.count(name) for name in dict.fromkeys(types)},
        recorded_inputs=inputs_seen,
        finished=known is not None and known.finished is not None,
        different=different,
    )


def _stretches(events: Sequence[Record]) -> Iterator[list[Record]]:
    """The events under one spec each: from RunStarted or RunForked to the next."""
    stretch: list[Record] = []
    for record in events:
        if isinstance(record.event, RunForked) and stretch:
            yield stretch
            stretch = []
        stretch.append(record)
    yield stretch


def _spec(event: Event) -> RunStarted:
    if isinstance(event, RunForked):
        return event.spec
    if isinstance(event, RunStarted):
        return event
    raise DamagedLog(f"a run begins with RunStarted, not {event.type}")


def _first_differs(
    log: EventLog, first: Record, known: State | None, inputs: Inputs
) -> DifferentEvent | None:
    """Whether a run of the same inputs would say the same of what it depends on."""
    event = first.event
    spec = _spec(event).model_copy(
        update={
            "signature": inputs.signature.hashes,
            "signature_parts": inputs.signature.model_dump(mode="json"),
            "projection_version": PROJECTION_VERSION,
            "lesser_paths": inputs.lesser_paths,
        }
    )
    now: Event = spec
    if isinstance(event, RunForked) and known is not None:
        before = inputs_of_spec(log, known.spec)
        differences, inherits = fork_differences(known.spec, before, inputs)
        now = event.model_copy(
            update={
                "spec": spec,
                "changed": tuple(difference.words for difference in differences),
                "inherits": inherits,
                "reopened": given_up(known) if inherits else (),
            }
        )
    if payload_of(event) == payload_of(now):
        return None
    return _different(first, Entry(now), _spec(event), inputs)


def _rehearse(rehearsal: Rehearsal, inputs: Inputs, first: Record) -> DifferentEvent | None:
    try:
        answers, models = _NothingKnown(), Models(live=False)
        with closing(Scorer()) as scorer:
            search(rehearsal, inputs, answers, rehearsal.stage, models, scorer)
            while rehearsal.reopened():
                search(rehearsal, inputs, answers, rehearsal.stage, models, scorer)
        rehearsal.finish()
    except RecordEnds:
        return None
    except Divergence as found:
        return _different(found.recorded, found.reproduced, _spec(first.event), inputs)
    return None


def _different(
    recorded: Record, now: Entry | None, spec: RunStarted, inputs: Inputs
) -> DifferentEvent:
    envelope, event = recorded
    before = {**_plain(event), "round": envelope.round, "trial": envelope.trial}
    after = {**_plain(now.event), "round": now.round, "trial": now.trial} if now else None
    path, old, new = _first_difference("", before, after)
    return DifferentEvent(
        run_id=envelope.run_id,
        seq=envelope.seq,
        type=event.type,
        trial=envelope.trial,
        path=path,
        recorded=old,
        now=new,
        recorded_under=Versions(
            refold=spec.refold_version,
            projection=spec.projection_version,
            stack=spec.signature_parts.get("stack", {}),
        ),
        now_under=Versions(
            refold=refold_version(),
            projection=PROJECTION_VERSION,
            stack=inputs.signature.model_dump(mode="json")["stack"],
        ),
    )


def _plain(event: Event) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(payload_of(comparable(event)))
    return plain


def _first_difference(path: str, before: Any, after: Any) -> tuple[str, Any, Any]:
    """The first place, by key, at which two JSON values differ, and what stands there."""
    if isinstance(before, dict) and isinstance(after, dict):
        # An event of another type differs in its type first of all.
        for key in sorted(before.keys() | after.keys(), key=lambda key: (key != "type", key)):
            old, new = before.get(key), after.get(key)
            if old != new:
                return _first_difference(f"{path}.{key}" if path else key, old, new)
    return path, before, after
