"""Nights one after the other, for as long as the process lives: `refold nightly --serve`."""

import time
import traceback
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from flows.terminal import say
from flows.verbs import report
from schemas.errors import RefoldError
from storage.run_ids import now_utc
from tasks.nightly.slots import next_slot
from tasks.nightly.targets import read_targets

_NAP_S = 30.0
"""The longest sleep: a clock that jumps, or a machine that was suspended, is noticed after it."""


def sleep_until(when: datetime) -> None:
    """Returns once the clock says `when`."""
    while (left := (when - now_utc()).total_seconds()) > 0:
        time.sleep(min(left, _NAP_S))


def serve(
    targets: Path,
    night: Callable[[], object],
    *,
    clock: Callable[[], datetime] = now_utc,
    wait_until: Callable[[datetime], None] = sleep_until,
) -> None:
    """Does the night that is due, waits for the next slot, and so on, until it is interrupted.

    A night that was missed is made up for at once, and once, as is one that was due while the one
    before it was still being done. What goes wrong with one night is said, and the next one is done
    all the same.

    Raises:
        UserError: the targets file is wrong at the start.
    """
    schedule = read_targets(targets).schedule
    while True:
        began = clock()
        try:
            night()
            schedule = read_targets(targets).schedule
        except RefoldError as error:
            report(str(error), error.hint)
        except Exception:  # noqa: BLE001 - such as a Prefect server that went away: said in full
            traceback.print_exc()
        when = next_slot(schedule, began)
        say(f"next night: {when:%Y-%m-%d %H:%M} UTC")
        wait_until(when)
