"""Verifying a long run with the help of processes of its own, one per CPU.

What an event must be by itself (its hash, its payload, its columns) is checked by the helpers, each
on its share of the run. Meanwhile this process follows the order: the chain's links, the anchor and
the fold, for which a trial's columns say enough. The answer is yes or "look again": what is wrong,
and which event is the first bad one, is for the verification that reads event by event.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from schemas.errors import LogError
from schemas.evaluation import Evaluation
from schemas.events import Event, TrialProposed, TrialRejected, TrialScored
from storage.backends import NotStored, SegmentStore
from storage.backends.local import LocalDisk
from storage.codec import event_of
from storage.collection import cycle_collection_paused
from storage.extent import read_segment, survey
from storage.reading import Reading, lineage_of, sound
from storage.segments import ROWS_PER_GROUP, ForeignSegment, Row, TornSegment, decode

EVENTS_PER_HELPER = 10_000
"""Below that, starting a helper takes as long as it saves."""


ALL_SOUND, NOT_SOUND = 0, 10
_HELPER = """\
import json, sys
sys.path, *share = json.load(sys.stdin)
from storage.helped_verification import help_verify
sys.exit(help_verify(*share))
"""


class Piece(NamedTuple):
    """A segment, and about how many events it has."""

    run_id: str
    first_seq: int
    events: int


def pieces_of(backend: SegmentStore, run_id: str) -> list[Piece]:
    """The segments of a run, those it shares with the runs it was forked from included."""
    pieces = []
    for name, last in lineage_of(backend, run_id):
        extent = survey(backend, name)
        end = extent.anchor.seq + 1 if extent.anchor else 0
        firsts = [seq for seq in extent.segments if last is None or seq <= last]
        pieces += [
            Piece(name, first, max(after - first, 0))
            for first, after in pairwise([*firsts, max([end, *firsts])])
        ]
    return pieces


class Helpers:
    """Processes that are looking through a run."""

    def __init__(self, processes: list[subprocess.Popen[bytes]]) -> None:
        self._processes = processes

    def found_all_sound(self) -> bool:
        """Waits for them. False: an event is not sound, or a helper could not tell."""
        return all(process.wait() == ALL_SOUND for process in self._processes)


@contextmanager
def helpers(root: Path, pieces: list[Piece], count: int) -> Iterator[Helpers]:
    """Starts `count` helpers on pieces of the store at `root`; stops those not done at the end.

    Interpreters of their own: `multiprocessing` would import the caller's main module in each.

    Raises:
        OSError: one cannot be started.
    """
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(count):
            process = subprocess.Popen([sys.executable, "-c", _HELPER], stdin=subprocess.PIPE)
            processes.append(process)
            assert process.stdin is not None
            with process.stdin as stdin:
                stdin.write(json.dumps([sys.path, str(root), pieces, number, count]).encode())
        yield Helpers(processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def helpers_worth(pieces: list[Piece]) -> int:
    """How many helpers a run of these pieces deserves; 0: it is verified without."""
    count = min(available_cpus(), sum(piece.events for piece in pieces) // EVENTS_PER_HELPER)
    return count if count > 1 else 0


def available_cpus() -> int:
    """CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def help_verify(root: str, pieces: list[tuple[str, int, int]], number: int, count: int) -> int:
    """What a helper does; its exit status."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    with cycle_collection_paused():
        sound = share_is_sound(LocalDisk(Path(root)), [Piece(*p) for p in pieces], number, count)
    return ALL_SOUND if sound else NOT_SOUND


def share_is_sound(backend: SegmentStore, pieces: list[Piece], number: int, count: int) -> bool:
    """Whether every event of share `number` of `count` is sound by itself: of long segments every
    `count`-th row group, of the others every `count`-th segment."""
    whole = 0
    for piece in pieces:
        groups = slice(None)
        if piece.events > ROWS_PER_GROUP:
            groups = slice(number, None, count)
        else:
            whole += 1
            if whole % count != number:
                continue
        decoder = partial(decode, groups=groups)
        try:
            rows = read_segment(backend, piece.run_id, piece.first_seq, decoder)
            if not all(map(_is_sound, rows)):
                return False
        except (LogError, NotStored, TornSegment, ForeignSegment):
            return False
    return True


def _is_sound(row: Row) -> bool:
    event = sound(row, in_canonical_form=True)
    # What the columns do not tell and the fold asks for.
    if type(event) is TrialProposed:
        return event.call is None
    return type(event) is not TrialScored or event.evaluation.trial_id == event.trial_id


def outlined() -> Reading:
    """Reads a run for its order alone; only with helpers that check what its events are."""
    return Reading(_outlined_rows, _outline)


def _outlined_rows(data: bytes) -> list[Row]:
    """Rows without their payloads where the columns tell enough."""
    rows = decode(data, payloads=False)
    if all(row.envelope.type in _OUTLINES for row in rows):
        return rows
    if len(rows) <= ROWS_PER_GROUP:
        return decode(data)
    filled: list[Row] = []
    number = 0
    while len(filled) < len(rows):
        group = slice(number, number + 1)
        part = decode(data, groups=group, payloads=False)
        told = all(row.envelope.type in _OUTLINES for row in part)
        filled += part if told else decode(data, groups=group)
        number += 1
    return filled


def _outline(row: Row) -> Event:
    """The event of a row, of a trial's only what its columns say."""
    outline = _OUTLINES.get(row.envelope.type)
    return event_of(row.envelope) if outline is None else outline(row)


def _proposal(row: Row) -> Event:
    told = {"trial_id": row.hot.trial_id, "call": None}
    event: Event = _blank(TrialProposed).model_copy(update=told)
    return event


def _rejection(row: Row) -> Event:
    event: Event = _blank(TrialRejected).model_copy(update={"trial_id": row.hot.trial_id})
    return event


def _score(row: Row) -> Event:
    hot = row.hot
    told = ("trial_id", "legal", "fits", "tokens_per_s_per_gpu", "source")
    evaluation = _blank(Evaluation).model_copy(update={name: getattr(hot, name) for name in told})
    event: Event = _blank(TrialScored).model_copy(
        update={"trial_id": hot.trial_id, "evaluation": evaluation}
    )
    return event


@cache
def _blank(model: type[BaseModel]) -> Any:
    return model.model_construct()


_OUTLINES: dict[str, Callable[[Row], Event]] = {
    "TrialProposed": _proposal,
    "TrialRejected": _rejection,
    "TrialScored": _score,
}
