from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import DamagedLog, LogError
from schemas.events import Event, RunInterrupted
from schemas.night import (
    Failure,
    NightAbandoned,
    NightFinished,
    NightStarted,
    Standing,
    TargetDecided,
    TargetTaken,
)
from schemas.targets import Target
from storage import Entry, EventLog, Store
from storage.nights import Night, night_id, past_of, read_night
from storage.verify import verify_night
from tests.storage.builders import evaluation, normal_trial

SLOT = datetime(2026, 3, 1, 2, tzinfo=UTC)
NAMES = ("a", "b", "c")


def started(name: str = "lab", slot: datetime = SLOT) -> NightStarted:
    targets = tuple(
        Target(name=known, workload=Path("w.yaml"), target_cluster=Path("c.yaml"))
        for known in NAMES
    )
    return NightStarted(
        name=name,
        slot=slot,
        targets=targets,
        spec="0" * 16,
        refold_version="0",
        projection_version="0",
    )


def failed(name: str) -> TargetDecided:
    failure = Failure(error="UserError", message="no")
    return TargetDecided(target=name, outcome="failed", failure=failure)


def recipe() -> Standing:
    known = evaluation(normal_trial()).model_dump()
    shared = {name: known[name] for name in Standing.model_fields if name in known}
    return Standing.model_validate({**shared, "run_id": "r", "trial": 3, "search": "0" * 16})


def write(store: Store, *events: Event, slot: datetime = SLOT) -> str:
    name = night_id("spec", slot)
    with EventLog.create(store.nights, name) as log:
        for event in events:
            log.append([Entry(event)], log.next_seq)
    return name


def read(store: Store, *events: Event) -> Night:
    return read_night(store, write(store, *events))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.at(tmp_path / "store")


def test_a_night_knows_what_was_taken_and_decided(store: Store):
    taken = TargetTaken(target="a", run="run-1", parent=None)
    night = read(store, started(), taken, failed("b"))
    assert night.taken == {"a": taken}
    assert list(night.decided) == ["b"]
    assert not night.over


def test_a_night_lies_beside_the_runs_and_is_none_of_them(store: Store):
    name = write(store, started())
    assert store.run_ids() == []
    assert store.nights.run_ids() == [name]


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ((failed("a"),), "begins with NightStarted"),
        ((started(), started()), "is an event of a run, not of a night|NightStarted"),
        ((started(), failed("d")), "which is no target"),
        ((started(), failed("a"), failed("a")), "decided already"),
        ((started(), failed("a"), TargetTaken(target="a", run="r", parent=None)), "decided"),
        ((started(), NightFinished(outcomes={})), "with a undecided"),
        ((started(), NightAbandoned(slot=SLOT), failed("a")), "after the night's end"),
        ((started(), RunInterrupted(why="x")), "is an event of a run"),
    ],
)
def test_an_event_that_cannot_follow_is_damage(store: Store, events: tuple[Event, ...], says: str):
    name = write(store, *events)
    with pytest.raises(DamagedLog, match=says):
        read_night(store, name)
    assert not verify_night(store, name).ok


def test_an_event_of_a_night_is_none_of_a_run(store: Store):
    with EventLog.create(store, "run-1") as log:
        log.append([Entry(started())], 0)
    with pytest.raises(DamagedLog, match="a run begins with RunStarted, not NightStarted"):
        EventLog.open(store, "run-1").state()


def test_a_slot_and_a_specification_have_one_night(store: Store):
    write(store, started())
    with pytest.raises(LogError, match="already in the store"):
        write(store, started())


@given(st.lists(st.datetimes(timezones=st.just(UTC)), min_size=2, max_size=2), st.text())
def test_nights_are_named_in_the_order_of_their_slots(slots: list[datetime], spec: str):
    slots = sorted(slot.replace(microsecond=0, year=2000 + slot.year % 1000) for slot in slots)
    first, second = (night_id(spec, slot) for slot in slots)
    assert first <= second
    assert (first == second) == (slots[0] == slots[1])
    assert night_id(spec + "x", slots[0]) != first


def test_the_past_is_of_nights_of_the_same_name(store: Store):
    for day, name in ((1, "lab"), (2, "other"), (3, "lab")):
        slot = SLOT.replace(day=day)
        write(store, started(name, slot), failed("a"), slot=slot)
    past = past_of(store, "lab", SLOT.replace(day=5), ["a"])
    assert past.last is not None
    assert past.last.started.slot.day == 3
    assert past_of(store, "lab", SLOT.replace(day=3), ["a"]).last != past.last
    assert past_of(store, "lab", SLOT, ["a"]).last is None


@pytest.mark.parametrize("targets", [["a"], ["a", "b"]])
def test_a_recipe_is_found_behind_a_night_that_left_none_whatever_else_is_asked(
    store: Store, targets: list[str]
):
    left = TargetDecided(target="a", outcome="first", after=recipe())
    lost = TargetDecided(target="a", outcome="re-tuned")
    for day, decided in ((1, left), (2, lost)):
        slot = SLOT.replace(day=day)
        write(store, started(slot=slot), decided, slot=slot)
    past = past_of(store, "lab", SLOT.replace(day=3), targets)
    assert past.barren["a"] == lost
    assert past.standings["a"] == recipe()


def test_a_damaged_night_is_passed_over_and_named(store: Store):
    write(store, started(), failed("a"))
    later = SLOT.replace(day=2)
    bad = write(store, failed("a"), slot=later)
    past = past_of(store, "lab", SLOT.replace(day=3), ["a"])
    assert past.last is not None
    assert past.last.started.slot == SLOT
    assert len(past.unread) == 1
    assert past.unread[0].startswith(bad)
