"""Names of pipeline schedules, and which number of chunks per rank each one runs."""

import difflib
from typing import cast, get_args

from schemas.errors import UserError
from schemas.trial import SCHEDULE_ALIASES, Schedule

SCHEDULES: tuple[Schedule, ...] = get_args(Schedule)
_ONE_CHUNK = frozenset({"1f1b", "zero-bubble", "zb-heuristic", "ilp"})
_V_SHAPED = frozenset({"zbv-formatted", "zbv-greedy-half", "zbv-greedy-min"})


def admits(schedule: str, vpp: int) -> bool:
    """Whether `schedule` runs `vpp` chunks per rank: one, two in a V, or any number above one."""
    if schedule in _ONE_CHUNK:
        return vpp == 1
    return vpp == 2 if schedule in _V_SHAPED else vpp > 1


def schedules_for(pp: int, vpp: int) -> tuple[Schedule, ...]:
    """The schedules of a (pp, vpp). One stage leaves nothing to schedule: 1F1B."""
    if pp == 1 and vpp == 1:
        return ("1f1b",)
    return tuple(schedule for schedule in SCHEDULES if admits(schedule, vpp))


def plain_schedule(vpp: int) -> Schedule:
    """The schedule that needs no flag: 1F1B, interleaved above one chunk per rank."""
    return "interleaved" if vpp > 1 else "1f1b"


def canonical_schedule(name: str) -> Schedule:
    """The schedule a name or alias means, whatever its case and separators.

    Raises:
        UserError: no schedule is called so; the hint is the nearest name.
    """
    key = name.strip().lower()
    for spelling in (key, key.replace("_", "-"), key.replace("_", "-").replace(" ", "-")):
        spelling = SCHEDULE_ALIASES.get(spelling, spelling)
        if spelling in SCHEDULES:
            return spelling
    nearest = nearest_schedule(name)
    raise UserError(
        f"pp_schedule {name!r:.80} is not a schedule"
        + (f"; did you mean {nearest!r}?" if nearest else ".")
        + f" There are: auto, {', '.join(SCHEDULES)}"
    )


def nearest_schedule(name: str) -> Schedule | None:
    """The schedule whose name or alias is spelled most like `name`; None when none is close."""
    spellings = [*SCHEDULES, *SCHEDULE_ALIASES]
    close = difflib.get_close_matches(name.strip().lower().replace("_", "-"), spellings, n=1)
    return cast(Schedule, SCHEDULE_ALIASES.get(close[0], close[0])) if close else None
