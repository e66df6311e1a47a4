"""A night: each target looked at, what changed searched again, and what is different now.

A night is a log of its own. Its name is a hash of what it looks at and of the slot it was due, so
that firing a slot twice is one night: the second does nothing, or goes on with what was cut off.
"""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from flows.artefacts import keep_caches_under
from flows.interrupts import Shield, shielded
from flows.ledger import Listener
from flows.opening import refold_version, store_of
from flows.out_dir import held
from flows.requests import NightRequest
from flows.retuning import Retuning
from flows.stages import Stage, in_process
from flows.terminal import say, warn
from projection import PROJECTION_VERSION
from schemas.errors import LogError, RunLocked, RunNotFound, StoreRefused
from schemas.events import Event
from schemas.night import (
    Failure,
    NightAbandoned,
    NightFinished,
    NightStarted,
    TargetDecided,
    TargetTaken,
)
from storage import Entry, EventLog, Store
from storage.nights import (
    Night,
    fold_night,
    is_anchored,
    night_id,
    past_of,
    read_night,
    unfinished,
)
from storage.run_ids import now_utc
from tasks.nightly.judge import Due, failed, judge_targets
from tasks.nightly.report import has_report, write_report
from tasks.nightly.slots import due_slot, slot_named, slots_between
from tasks.nightly.standing import KnownRuns
from tasks.nightly.targets import Targets, folder_of, read_targets, secrets_of
from tasks.scoring import chosen

DEFAULT_OUT_DIR = Path("nightly")


@dataclass(frozen=True, slots=True)
class Done:
    """A night that is over, and where its report is."""

    night: Night
    out_dir: Path
    already: bool
    """It was over before: nothing was done."""


def run_night(
    request: NightRequest,
    *,
    stage: Stage = in_process,
    listeners: Sequence[Listener] = (),
    clock: Callable[[], datetime] = now_utc,
) -> Done:
    """Does the night that is due, or what is left of it.

    Raises:
        UserError: the targets file or the choice of a scoring engine is wrong, or the out-dir
            cannot be written. A target's own files are its own failure.
        EnvironmentMissing: the scoring engine that was asked for is not installed.
        RunLocked: another process is doing this night, or an earlier one of its name.
        KeyboardInterrupt: it was asked to stop; the same request goes on from there.
    """
    chosen(request.scoring, os.environ)  # else every target would fail of it, and the slot be spent
    asked = stage("read_targets", read_targets, request.targets)
    store = store_of(request.store)
    keep_caches_under(store)
    slot = slot_of(request, asked, clock())
    night = night_id(asked.spec, slot)
    out_dir = request.out_dir or DEFAULT_OUT_DIR / folder_of(asked.name)
    known = _known_night(store, night)
    if known is not None and known.over and is_anchored(store, known):
        return _over(known, out_dir)
    before = None if known is not None else past_of(store, asked.name, slot, ()).last
    with shielded() as shield, _opened(store, asked, slot, night, before) as log:
        ours = _NightLog(log, shield, listeners)
        if log.next_seq == 0:
            ours.record(_started(asked, slot, before))
        elif (known := ours.night).over:  # whoever did it ended a moment ago, or died after it
            ours.settle()
            return _over(known, out_dir)
        with held(out_dir):  # else each search would fail of it, and the night be over
            _do(ours, store, Retuning(store, out_dir, stage, listeners, request.scoring))
        done = ours.night
    stage("report", write_report, done, out_dir)
    return Done(done, out_dir, already=False)


def _over(night: Night, out_dir: Path) -> Done:
    """A night that was done before; its report is written, if whoever did it could not."""
    if not has_report(night, out_dir):
        write_report(night, out_dir, newest=False)
    return Done(night, out_dir, already=True)


def slot_of(request: NightRequest, asked: Targets, now: datetime) -> datetime:
    """The slot that is asked for, or due, UTC."""
    if request.slot is None:
        return due_slot(asked.schedule, now)
    return slot_named(request.slot, asked.schedule, now)


class _NightLog:
    """The log of a night that is being done."""

    def __init__(self, log: EventLog, shield: Shield, listeners: Sequence[Listener] = ()) -> None:
        self._log = log
        self._shield = shield
        self._listeners = listeners

    @property
    def night(self) -> Night:
        """What the night knows."""
        return fold_night(self._log.iterate())

    def record(self, *events: Event) -> None:
        """Adds events, durably, then tells the listeners."""
        with self._shield.raised():
            recorded = self._log.append([Entry(event) for event in events], self._log.next_seq)
        for event, envelope in zip(events, recorded, strict=True):
            for listener in self._listeners:
                listener(event, envelope)

    def decide(self, decided: TargetDecided) -> None:
        """Adds a decision; of one that the log refuses for a secret in it, only that it failed.

        Raises:
            LogError: the log cannot be written.
        """
        try:
            self.record(decided)
        except LogError as error:
            if type(error) is not LogError:  # a writer that is behind, a store that refuses
                raise
            failure = Failure(
                error="LogError", message="what was found of it is not written: a key"
            )
            self.record(TargetDecided(target=decided.target, outcome="failed", failure=failure))

    def end(self, event: NightFinished | NightAbandoned) -> None:
        """Adds the night's last event, anchors it, and puts all of them into one segment."""
        self.record(event)
        self.settle()

    def settle(self) -> None:
        """Anchors a night that is over, and puts its events into one segment."""
        self._log.compact()


def _known_night(store: Store, night: str) -> Night | None:
    try:
        return read_night(store, night)
    except RunNotFound:
        return None


def _opened(
    store: Store, asked: Targets, slot: datetime, night: str, before: Night | None
) -> EventLog:
    """The night's log, held: nobody else does this night, nor an earlier one of its name."""
    secrets = secrets_of(asked)
    if night in store.nights.run_ids():
        log = EventLog.open(store.nights, night, writing=True, secrets=secrets)
        say(f"night {night} was begun before: going on with it")
        return log
    last = [] if before is None or before.over else [before]
    for cut_off in (*last, *unfinished(store, asked.name, slot)):
        # One that is being done is locked, which is raised; a dead one's slot ours stands for.
        with EventLog.open(store.nights, cut_off.night_id, writing=True) as log:
            _NightLog(log, Shield()).end(NightAbandoned(slot=slot))
        say(f"night {cut_off.night_id} was cut off: this one takes its place")
    try:
        return EventLog.create(store.nights, night, secrets=secrets)
    except (RunLocked, StoreRefused):
        raise
    except LogError:  # somebody began it a moment ago
        return EventLog.open(store.nights, night, writing=True, secrets=secrets)


def _started(asked: Targets, slot: datetime, before: Night | None) -> NightStarted:
    missed = 0 if before is None else slots_between(asked.schedule, before.started.slot, slot)
    if missed:
        say(f"nothing ran at {missed} slots since the night before: this night stands for them")
    return NightStarted(
        name=asked.name,
        slot=slot,
        targets=asked.targets,
        spec=asked.spec,
        missed=missed,
        before=None if before is None else before.night_id,
        refold_version=refold_version(),
        projection_version=PROJECTION_VERSION,
    )


def _do(log: _NightLog, store: Store, retuning: Retuning) -> None:
    """What is left of a night: first what need not be searched, all of it; then the searches."""
    night, stage = log.night, retuning.stage
    targets = [target for target in night.started.targets if target.name not in night.decided]
    names = [target.name for target in targets]
    past = past_of(store, night.started.name, night.started.slot, names)
    # Without the runs of an earlier attempt at this night: they are its searches, not its past.
    ours = {taken.run for taken in night.taken.values()}
    known = stage("known_runs", KnownRuns.of, store, ours)
    due: list[Due] = []
    for found in stage("judge_targets", judge_targets, targets, past, known):
        if isinstance(found, Due):
            due.append(found)
        else:
            log.decide(found)
    for line in (*past.unread, *known.unread):
        warn(f"passed over {line}")
    for search in due:
        _retune(log, retuning, search, night.taken.get(search.target.name))
    outcomes = Counter(decided.outcome for decided in log.night.decided.values())
    log.end(NightFinished(outcomes=dict(sorted(outcomes.items()))))


def _retune(log: _NightLog, retuning: Retuning, due: Due, taken: TargetTaken | None) -> None:
    """Searches a target, in the run of an earlier attempt if there is one, and records its end."""
    if taken is None or not retuning.begun(taken):
        taken = retuning.taken(due)
        log.record(taken)
    try:
        decided = retuning.search(due, taken)
    except StoreRefused:  # nothing can be recorded: the same command goes on, once there is room
        raise
    except Exception as error:  # noqa: BLE001 - one target never stops the others
        decided = failed(due.target, error, due.before)
    log.decide(decided)
