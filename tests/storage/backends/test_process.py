import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from storage.backends import process
from storage.backends.lease import Owner
from storage.backends.process import has_died, this_process

ME = this_process(datetime(2026, 1, 2, tzinfo=UTC))


def owner_of(pid: int) -> Owner:
    started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    return ME.model_copy(update={"pid": pid, "process_started": started})


def test_this_process_lives_and_one_of_the_same_number_before_it_does_not() -> None:
    assert not has_died(ME)
    assert has_died(ME.model_copy(update={"process_started": "1"}))


def test_a_killed_process_has_died_whether_its_parent_looked_or_not() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = owner_of(child.pid)
    assert not has_died(owner)
    child.kill()
    with open(f"/proc/{child.pid}/stat") as stat:
        while stat.read().rpartition(")")[2].split()[0] != "Z":
            stat.seek(0)
    assert has_died(owner), "a zombie"
    child.communicate()
    assert has_died(owner), "gone"


def test_of_another_machine_nothing_is_known() -> None:
    dead = ME.model_copy(update={"process_started": "1"})
    assert not has_died(dead.model_copy(update={"machine": "another"}))
    assert not has_died(dead.model_copy(update={"machine": ""}))


def test_a_process_that_is_hidden_from_us_is_not_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_process_started", lambda _: "")
    assert not has_died(ME)
