"""When nights are due. Pure: the time it is comes in as an argument."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from schemas.errors import UserError, shown
from schemas.targets import Schedule

NOW = "now"
_ANY_DAY = datetime(2026, 1, 1, tzinfo=UTC)
_FIELDS = 5
_YEARS = range(1970, 9999)
"""Of slots: nights are named by their slots, and sort by their names."""
_MOST = 10_000
"""Missed slots that are counted."""


def checked(
    schedule: Schedule, where: str, quoted: Callable[[str], str] = lambda _: "what is said"
) -> None:
    """Raises UserError unless `schedule` can be followed; `where` is its place in a file, `quoted`
    its value of a key as a message may repeat it."""
    try:
        ZoneInfo(schedule.timezone)
    except (KeyError, ValueError, OSError) as error:  # KeyError: ZoneInfoNotFoundError's base
        raise UserError(
            f"{where}.timezone: {quoted('timezone')} is no time zone",
            hint="an IANA name, such as UTC or Europe/Berlin",
        ) from error
    try:
        if len(schedule.cron.split()) != _FIELDS:  # a sixth would be seconds
            raise CronSimError("Wrong number of fields")
        next(_times(schedule, _ANY_DAY, reverse=False))
    except (CronSimError, StopIteration) as error:
        raise UserError(
            f"{where}.cron: {quoted('cron')} is no schedule: {error}",
            hint='five fields, minute first: "0 2 * * *" is 02:00 every night',
        ) from error


def due_slot(schedule: Schedule, now: datetime) -> datetime:
    """The last slot that is not after `now`, UTC.

    However many were missed, this one is due: the others are made up for by it.
    """
    # A slot at this very instant is due, and the walk backwards looks strictly before.
    due = next(_times(schedule, now.replace(microsecond=now.microsecond or 1), reverse=True))
    # In the hour that a clock put back shows twice, that walk misses a slot of its first showing.
    while (following := next_slot(schedule, due)) <= now:
        due = following
    return due


def next_slot(schedule: Schedule, now: datetime) -> datetime:
    """The first slot after `now`, UTC."""
    return next(_times(schedule, now, reverse=False))


def slots_between(schedule: Schedule, earlier: datetime, later: datetime) -> int:
    """How many slots lie between two, neither counted; at most 10,000."""
    after = islice(_times(schedule, earlier, reverse=False), _MOST)
    return sum(1 for _ in takewhile(lambda slot: slot < later, after))


def slot_named(text: str, schedule: Schedule, now: datetime) -> datetime:
    """The slot a person names: "now", or a time (ISO 8601, in the schedule's zone if it has none).

    Raises:
        UserError: it is neither.
    """
    if text == NOW:
        return now.replace(microsecond=0)
    try:
        named = datetime.fromisoformat(text)
        if named.tzinfo is None:
            named = named.replace(tzinfo=ZoneInfo(schedule.timezone))
        slot = named.astimezone(UTC).replace(microsecond=0)
        if slot.year not in _YEARS:
            raise OverflowError
    except (ValueError, OverflowError) as error:
        raise UserError(
            f"--slot {shown(text)} is no time",
            hint="say now, or a time such as 2026-01-02T02:00",
        ) from error
    return slot


def _times(schedule: Schedule, start: datetime, *, reverse: bool) -> Iterator[datetime]:
    local = start.astimezone(ZoneInfo(schedule.timezone))
    for found in CronSim(schedule.cron, local, reverse=reverse):
        yield found.astimezone(UTC)
