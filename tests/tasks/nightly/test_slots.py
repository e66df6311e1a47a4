from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import UserError
from schemas.targets import Schedule
from tasks.nightly.slots import checked, due_slot, next_slot, slot_named, slots_between

NIGHTLY = Schedule()
BERLIN = Schedule(cron="30 2 * * *", timezone="Europe/Berlin")

MOMENTS = st.datetimes(
    min_value=datetime(2024, 1, 1), max_value=datetime(2030, 1, 1), timezones=st.just(UTC)
)
SCHEDULES = st.sampled_from(
    [
        NIGHTLY,
        BERLIN,
        Schedule(cron="*/7 * * * *"),
        Schedule(cron="0 3 * * mon", timezone="America/New_York"),
        Schedule(cron="15 0 1 * *", timezone="Asia/Kolkata"),
    ]
)


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type]


@given(SCHEDULES, MOMENTS)
def test_the_due_slot_is_the_last_that_is_not_after_now(schedule: Schedule, now: datetime):
    due = due_slot(schedule, now)
    following = next_slot(schedule, now)
    assert due <= now < following
    assert slots_between(schedule, due, following) == 0


@given(SCHEDULES, MOMENTS)
def test_a_slot_is_due_from_its_own_instant_on(schedule: Schedule, now: datetime):
    slot = next_slot(schedule, now)
    assert due_slot(schedule, slot) == slot
    assert due_slot(schedule, slot - timedelta(microseconds=1)) < slot


def test_slots_between_counts_neither_end():
    assert slots_between(NIGHTLY, utc(2026, 3, 1, 2), utc(2026, 3, 2, 2)) == 0
    assert slots_between(NIGHTLY, utc(2026, 3, 1, 2), utc(2026, 3, 5, 2)) == 3


def test_slots_between_stops_counting_at_ten_thousand():
    often = Schedule(cron="* * * * *")
    assert slots_between(often, utc(2020, 1, 1), utc(2026, 1, 1)) == 10_000


def test_a_night_of_daylight_saving_has_one_slot_each_way():
    """On 29 March 2026 Berlin has no 02:30, on 25 October it has two."""
    spring = slots_between(BERLIN, utc(2026, 3, 28, 12), utc(2026, 3, 30, 12))
    autumn = slots_between(BERLIN, utc(2026, 10, 24, 12), utc(2026, 10, 26, 12))
    assert (spring, autumn) == (2, 2)


def test_a_slot_may_be_named():
    now = utc(2026, 3, 1, 12, 0, 5).replace(microsecond=9)
    assert slot_named("now", NIGHTLY, now) == utc(2026, 3, 1, 12, 0, 5)
    assert slot_named("2026-02-28T02:00", NIGHTLY, now) == utc(2026, 2, 28, 2)
    assert slot_named("2026-02-28T02:30", BERLIN, now) == utc(2026, 2, 28, 1, 30)
    assert slot_named("2026-02-28T02:00+05:00", NIGHTLY, now) == utc(2026, 2, 27, 21)


def test_a_slot_that_is_no_time_is_refused():
    for text in (
        "tomorrow",
        "2026-02-30",
        "0001-01-01T00:00+10:00",
        "9999-12-31T23:59-10:00",
        "0999-01-01",
    ):
        with pytest.raises(UserError, match="is no time"):
            slot_named(text, NIGHTLY, utc(2026, 3, 1))


def test_in_the_hour_that_comes_twice_the_slot_of_its_first_time_is_due():
    assert due_slot(BERLIN, utc(2026, 10, 25, 1, 15)) == utc(2026, 10, 25, 0, 30)


@pytest.mark.parametrize(
    "schedule",
    [
        Schedule(cron="0 2 * *"),
        Schedule(cron="0 25 * * *"),
        Schedule(cron="* * * * * *"),
        Schedule(cron="0 2 30 2 *"),
        Schedule(cron="nightly"),
        Schedule(timezone="Europe/Atlantis"),
        Schedule(timezone="../../etc/passwd"),
        Schedule(timezone="/etc/localtime"),
    ],
)
def test_a_schedule_that_cannot_be_followed_is_refused(schedule: Schedule):
    with pytest.raises(UserError, match=r"targets\.yaml"):
        checked(schedule, "targets.yaml: schedule")


@pytest.mark.parametrize("schedule", [NIGHTLY, BERLIN])
def test_a_schedule_that_can_be_followed_is_not(schedule: Schedule):
    checked(schedule, "targets.yaml: schedule")
