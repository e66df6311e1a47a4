"""Nights: their logs in a store, and the fold from a night's events to what it found.

A night is kept as a run is, in a log of its own with the same promises, below `nights/`.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from types import MappingProxyType
from typing import Any

from schemas.errors import DamagedLog, LogError, RunNotFound
from schemas.events import Envelope, Event, TailRecovered
from schemas.night import (
    NightAbandoned,
    NightFinished,
    NightStarted,
    Standing,
    TargetDecided,
    TargetTaken,
)
from schemas.signature import content_hash
from storage.heads import read_anchor
from storage.log import EventLog
from storage.reading import BadEvent, Record
from storage.store import Store

STAMP = "%Y%m%dt%H%M%S"
_OLDEST = 30
"""Nights looked back through for a target's recipe."""


@dataclass(frozen=True, slots=True)
class Night:
    """What a night knows as of event `head_seq`."""

    night_id: str
    head_seq: int
    head_hash: str
    started: NightStarted
    started_at: datetime
    last_at: datetime
    taken: Mapping[str, TargetTaken]
    """By target, the run that was begun for it last."""
    decided: Mapping[str, TargetDecided]
    """By target, in the order they were decided."""
    finished: NightFinished | None
    abandoned: NightAbandoned | None

    @property
    def over(self) -> bool:
        """Nothing is added any more."""
        return self.finished is not None or self.abandoned is not None


def night_id(spec: str, slot: datetime) -> str:
    """The one night of a specification (its hash) and a slot (UTC): firing a slot twice names the
    same night (P15). Lexical order is the order of slots."""
    return f"{slot.strftime(STAMP)}-{content_hash({'spec': spec, 'slot': slot.isoformat()})}"


def fold_night(records: Iterable[Record]) -> Night:
    """What a night's events come to.

    Raises:
        DamagedLog: an event that cannot follow those before it, or there is none.
    """
    folder: _Folder | None = None
    for envelope, event in records:
        if folder is None:
            if not isinstance(event, NightStarted):
                raise BadEvent(
                    envelope.run_id,
                    envelope.seq,
                    f"a night begins with NightStarted, not {event.type}",
                )
            folder = _Folder(event, envelope)
        else:
            folder.follow(envelope, event)
    if folder is None:
        raise DamagedLog("the night holds no event")
    return folder.night()


@dataclass(slots=True)
class _Folder:
    started: NightStarted
    envelope: Envelope
    """The last one."""
    first: Envelope = field(init=False)
    taken: dict[str, TargetTaken] = field(default_factory=dict)
    decided: dict[str, TargetDecided] = field(default_factory=dict)
    finished: NightFinished | None = None
    abandoned: NightAbandoned | None = None

    def __post_init__(self) -> None:
        self.first = self.envelope

    def follow(self, envelope: Envelope, event: Event) -> None:
        if not isinstance(event, TailRecovered):
            if self.finished is not None or self.abandoned is not None:
                self._impossible(envelope, "comes after the night's end")
            step = _STEPS.get(type(event))
            if step is None:
                self._impossible(envelope, "is an event of a run, not of a night")
            else:
                step(self, envelope, event)
        self.envelope = envelope

    def _taken(self, envelope: Envelope, event: TargetTaken) -> None:
        self._open(envelope, event.target)
        self.taken[event.target] = event

    def _decided(self, envelope: Envelope, event: TargetDecided) -> None:
        self._open(envelope, event.target)
        self.decided[event.target] = event

    def _finished(self, envelope: Envelope, event: NightFinished) -> None:
        if missing := [t.name for t in self.started.targets if t.name not in self.decided]:
            self._impossible(envelope, f"ends the night with {missing[0]} undecided")
        self.finished = event

    def _abandoned(self, _: Envelope, event: NightAbandoned) -> None:
        self.abandoned = event

    def _open(self, envelope: Envelope, target: str) -> None:
        if target in self.decided:
            self._impossible(envelope, f"is of {target}, which is decided already")
        if all(known.name != target for known in self.started.targets):
            self._impossible(envelope, f"is of {target}, which is no target of the night")

    def _impossible(self, envelope: Envelope, what: str) -> None:
        raise BadEvent(envelope.run_id, envelope.seq, f"{envelope.type} {what}")

    def night(self) -> Night:
        return Night(
            night_id=self.envelope.run_id,
            head_seq=self.envelope.seq,
            head_hash=self.envelope.hash,
            started=self.started,
            started_at=self.first.at,
            last_at=self.envelope.at,
            taken=MappingProxyType(dict(self.taken)),
            decided=MappingProxyType(dict(self.decided)),
            finished=self.finished,
            abandoned=self.abandoned,
        )


_STEPS: dict[type[Event], Callable[[_Folder, Envelope, Any], None]] = {
    TargetTaken: _Folder._taken,
    TargetDecided: _Folder._decided,
    NightFinished: _Folder._finished,
    NightAbandoned: _Folder._abandoned,
}


def read_night(store: Store, night: str) -> Night:
    """A night of `store`, verified.

    Raises:
        RunNotFound, DamagedLog: it cannot be read.
    """
    return fold_night(EventLog.open(store.nights, night).iterate())


def newest_night(store: Store) -> str | None:
    """The night of the latest slot; of several, the one that began last. Names alone order nights
    of one slot by their hash."""
    names = store.nights.run_ids()
    last = [name for name in names if name.partition("-")[0] == names[-1].partition("-")[0]]
    begun = max(_readable(store, last, []), key=lambda night: night.started_at, default=None)
    return None if begun is None else begun.night_id


def is_anchored(store: Store, night: Night) -> bool:
    """Whether the last event of a night is anchored, so that losing it would be seen (P2)."""
    anchored = read_anchor(store.nights.backend, night.night_id)
    return anchored is not None and anchored.head.seq == night.head_seq


@dataclass(frozen=True)
class Past:
    """What earlier nights of a name leave to the next."""

    last: Night | None
    """The night before."""
    standings: Mapping[str, Standing]
    """By target, the recipe that the last night to have one left it with."""
    barren: Mapping[str, TargetDecided]
    """By target, the last decision that was no failure, where it left the target no recipe."""
    unread: tuple[str, ...]
    """Nights that are damaged, and why."""


def unfinished(store: Store, name: str, slot: datetime) -> list[Night]:
    """Nights of `name` with this very slot (UTC) that are not over: of other targets or texts."""
    known = (n for n in store.nights.run_ids() if n.startswith(f"{slot.strftime(STAMP)}-"))
    nights = _readable(store, known, [])
    return [night for night in nights if night.started.name == name and not night.over]


def _newest_first(store: Store, before: datetime, unread: list[str]) -> Iterator[Night]:
    """Of one slot, the one begun last is first: its name, which ends in a hash, says nothing."""
    stamp = before.strftime(STAMP)
    known = [night for night in reversed(store.nights.run_ids()) if night < stamp]
    for _, of_slot in groupby(known, key=lambda night: night[: len(stamp)]):
        nights = _readable(store, of_slot, unread)
        yield from sorted(nights, key=lambda night: night.started_at, reverse=True)


def _readable(store: Store, names: Iterable[str], unread: list[str]) -> Iterator[Night]:
    for name in names:
        try:
            yield read_night(store, name)
        except (LogError, RunNotFound) as error:  # the latter: one that has no event yet
            unread.append(f"{name}: {error}")


def past_of(store: Store, name: str, before: datetime, targets: Collection[str]) -> Past:
    """The nights of `name` with a slot earlier than `before` (UTC), newest first, as far back as
    `targets` ask for, but no more than 30."""
    last: Night | None = None
    found: dict[str, Standing] = {}
    barren: dict[str, TargetDecided] = {}
    unread: list[str] = []
    looked = 0
    for night in _newest_first(store, before, unread):
        if night.started.name != name:
            continue
        looked += 1
        last = last or night
        for target, decided in night.decided.items():
            if decided.after is not None:
                found.setdefault(target, decided.after)
            elif decided.outcome != "failed" and target not in found:
                barren.setdefault(target, decided)
        if looked == _OLDEST or all(target in found for target in targets):
            break
    return Past(last, MappingProxyType(found), MappingProxyType(barren), tuple(unread))
