"""Where a run is cut: the event a fork continues from, or a replay stops at."""

from collections.abc import Iterable
from typing import NamedTuple

from schemas.errors import UserError
from schemas.events import RoundFinished, RoundStarted, RunForked, TrialRejected, TrialScored
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
    own = _beginning(known)
    if cut.round is not None:
        return known[: _before_round(known, own, run_id, cut.round)]
    if cut.trial is not None:
        return known[: _after_trial(known, own, run_id, cut.trial)]
    if cut.event is not None and not 0 <= cut.event < len(known):
        raise UserError(f"run {run_id} has no event {cut.event}: its last is {len(known) - 1}")
    return known if cut.event is None else known[: cut.event + 1]


def _beginning(known: list[Record]) -> int:
    """Where the rounds and trials begin that the run calls its own: after the last fork that began
    them anew."""
    anew = [n for n, (_, e) in enumerate(known) if isinstance(e, RunForked) and not e.inherits]
    return anew[-1] + 1 if anew else 0


def _before_round(known: list[Record], own: int, run_id: str, number: int) -> int:
    """How many events come before round `number`."""
    ends: dict[int, int] = {}
    for position, (envelope, event) in enumerate(known[own:], own):
        if isinstance(event, RoundStarted) and envelope.round == number:
            return position
        if isinstance(event, RoundFinished) and envelope.round is not None:
            ends[envelope.round] = position + 1
    if number - 1 in ends:
        return ends[number - 1]
    there = f"{min(ends)} to {max(ends) + 1}" if ends else "0"
    raise UserError(f"run {run_id} cannot be cut before round {number}, only before {there}")


def _after_trial(known: list[Record], own: int, run_id: str, number: int) -> int:
    """How many events there are up to the verdict on trial `number`: the last one, for a trial that
    a fork took up again."""
    for position in range(len(known) - 1, own - 1, -1):
        envelope, event = known[position]
        if envelope.trial == number and isinstance(event, TrialScored | TrialRejected):
            return position + 1
    raise UserError(
        f"run {run_id} has no verdict on a trial {number}",
        hint=f"refold show {run_id} lists its trials",
    )
