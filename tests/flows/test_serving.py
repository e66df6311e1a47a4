from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from flows.serving import serve, sleep_until
from schemas.errors import RunLocked, UserError
from storage.run_ids import now_utc

TARGET = {"workload": "w.yaml", "target_cluster": "c.yaml"}


class Stopped(BaseException): ...


class Clock:
    """A clock that somebody else moves."""

    def __init__(self, start: datetime) -> None:
        self.now = start
        self.waited: list[datetime] = []

    def __call__(self) -> datetime:
        return self.now

    def wait(self, when: datetime) -> None:
        self.waited.append(when)
        self.now = when
        if len(self.waited) == 3:
            raise Stopped


@pytest.fixture
def targets(tmp_path: Path) -> Path:
    path = tmp_path / "targets.yaml"
    path.write_text(yaml.safe_dump({"targets": [TARGET]}))
    return path


def test_each_slot_is_waited_for_and_done(targets: Path):
    clock, done = Clock(datetime(2026, 3, 1, 12, tzinfo=UTC)), []
    with pytest.raises(Stopped):
        serve(targets, lambda: done.append(clock.now), clock=clock, wait_until=clock.wait)
    assert done == [datetime(2026, 3, 1, 12, tzinfo=UTC), *clock.waited[:2]]
    assert clock.waited == [datetime(2026, 3, day, 2, tzinfo=UTC) for day in (2, 3, 4)]


def test_a_night_that_goes_wrong_does_not_end_the_service(
    targets: Path, capsys: pytest.CaptureFixture[str]
):
    clock, tried = Clock(datetime(2026, 3, 1, 12, tzinfo=UTC)), []

    def night() -> None:
        tried.append(clock.now)
        if len(tried) == 1:
            raise RunLocked("somebody is doing it")
        if len(tried) == 2:
            raise ConnectionError("the server went away")
        targets.unlink(missing_ok=True)

    with pytest.raises(Stopped):
        serve(targets, night, clock=clock, wait_until=clock.wait)
    assert len(tried) == 3
    said = capsys.readouterr().err
    assert "somebody is doing it" in said
    assert "the server went away" in said
    assert "no such file" in said


def test_a_slot_that_passes_while_a_night_is_done_is_made_up_for_at_once(targets: Path):
    clock, began = Clock(datetime(2026, 3, 1, 12, tzinfo=UTC)), []

    def night() -> None:
        began.append(clock.now)
        clock.now += timedelta(hours=40 if len(began) == 1 else 1)

    def wait(when: datetime) -> None:
        clock.wait(max(when, clock.now))

    with pytest.raises(Stopped):
        serve(targets, night, clock=clock, wait_until=wait)
    overdue = datetime(2026, 3, 3, 4, tzinfo=UTC)
    assert began == [
        datetime(2026, 3, 1, 12, tzinfo=UTC),
        overdue,
        datetime(2026, 3, 4, 2, tzinfo=UTC),
    ]


def test_a_file_that_is_wrong_at_the_start_does(tmp_path: Path):
    with pytest.raises(UserError):
        serve(tmp_path / "none.yaml", lambda: None, wait_until=lambda _: None)


def test_a_new_schedule_in_the_file_is_followed(targets: Path):
    clock = Clock(datetime(2026, 3, 1, 12, tzinfo=UTC))

    def night() -> None:
        document = {"schedule": {"cron": "0 5 * * *"}, "targets": [TARGET]}
        targets.write_text(yaml.safe_dump(document))

    with pytest.raises(Stopped):
        serve(targets, night, clock=clock, wait_until=clock.wait)
    assert {when.hour for when in clock.waited} == {5}


def test_sleeping_ends_when_the_time_has_come():
    before = now_utc()
    sleep_until(before + timedelta(milliseconds=20))
    assert now_utc() >= before + timedelta(milliseconds=20)
    sleep_until(before)
