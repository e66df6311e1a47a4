"""Where a run is cut: the event a fork continues from, or a replay stops at."""

from collections.abc import Iterable
from typing import NamedTuple

from schemas.errors import UserError
from schemas.events import RoundFinished, RoundStarted, TrialRejected, TrialScored
from storage.reading import Record


class Cut(NamedTuple):
    """The last event kept. None of `round`, `trial` and `event` set: the run's last one."""

    round: int | None = None
    """Everything before this round begins; the number after the last finished round: all of it."""
    trial: int | None = None
    """Everything up to the verdict on this trial."""
    event: int | None = None
    """Everything up to this event."""

    @property
    def words(self) -> str:
        """`before round 1`, as a fork records where it was asked for."""
        if self.round is not None:
            return f"before round {self.round}"
        if self.trial is not None:
            return f"after trial {self.trial}"
        return "at the end" if self.event is None else f"after event {self.event}"


def cut_at(records: Iterable[Record], run_id: str, cut: Cut) -> list[Record]:
    """The events of run `run_id` that `cut` keeps.

    Raises:
        UserError: more than one place is named, or the run has no such place; the message says
            which it has.
    """
    if sum(place is not None for place in cut) > 1:
        raise UserError("name one place: --at-round, --at-trial or --at-event")
    known = list(records)
    if cut.round is not None:
        return _before_round(known, run_id, cut.round)
    if cut.trial is not None:
        return _after_trial(known, run_id, cut.trial)
    if cut.event is not None and not 0 <= cut.event < len(known):
        raise UserError(f"run {run_id} has no event {cut.event}: its last is {len(known) - 1}")
    return known if cut.event is None else known[: cut.event + 1]


def _before_round(known: list[Record], run_id: str, number: int) -> list[Record]:
    rounds: list[int] = []
    for position, (envelope, event) in enumerate(known):
        if isinstance(event, RoundStarted) and envelope.round == number:
            return known[:position]
        if isinstance(event, RoundFinished) and envelope.round is not None:
            rounds.append(envelope.round)
            if envelope.round == number - 1:
                end = position
    if number - 1 in rounds:
        return known[: end + 1]
    there = f"{rounds[0]} to {rounds[-1] + 1}" if rounds else "0"
    raise UserError(f"run {run_id} cannot be cut before round {number}, only before {there}")


def _after_trial(known: list[Record], run_id: str, number: int) -> list[Record]:
    for position, (envelope, event) in enumerate(known):
        if envelope.trial == number and isinstance(event, TrialScored | TrialRejected):
            return known[: position + 1]
    raise UserError(
        f"run {run_id} has no verdict on a trial {number}",
        hint=f"refold show {run_id} lists its trials",
    )
