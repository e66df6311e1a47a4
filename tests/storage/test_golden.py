"""Logs written by every version of the event schema, read by today's code (P10)."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from flows.forking import fork
from flows.opening import inputs_of_run
from flows.requests import ForkRequest, ResumeRequest
from flows.tune import resume
from schemas.errors import SpecChanged
from schemas.events import SCHEMA_VERSION, NoteTaken
from scripts.golden_logs import GOLDEN, night_outcome, outcome, shapes
from storage import Entry, EventLog, Store, list_runs
from storage.codec import event_types
from storage.nights import read_night
from storage.segments import decode
from storage.upcasting import ADDED_IN, UPCASTERS, upcast
from storage.verify import verify, verify_night
from tests.end_to_end.cutting import but_export

pytestmark = pytest.mark.whole

VERSIONS = sorted(int(folder.name.removeprefix("v")) for folder in GOLDEN.glob("v*"))
RUNS = [
    (version, run) for version in VERSIONS for run in Store.at(GOLDEN / f"v{version}").run_ids()
]
HOW_TO = (
    "raise SCHEMA_VERSION, write the step to it in storage/upcasting.py, and run"
    " scripts/golden_logs.py (see its docstring)"
)


def recorded(version: int, name: str) -> Any:
    return json.loads((GOLDEN / f"v{version}" / name).read_bytes())


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def copied(version: int, folder: Path) -> Path:
    return Path(shutil.copytree(GOLDEN / f"v{version}", folder / "store"))


def payloads(version: int) -> list[tuple[str, dict[str, Any]]]:
    """Type and payload of every event as it lies in the version's logs."""
    paths = sorted((GOLDEN / f"v{version}").glob("**/runs/*/events/*.parquet"))
    envelopes = [row.envelope for path in paths for row in decode(path.read_bytes())]
    assert {e.schema_version for e in envelopes} == {version}
    return [(e.type, json.loads(e.payload)) for e in envelopes]


def test_every_version_has_its_logs_and_its_step_to_the_next() -> None:
    assert list(range(1, SCHEMA_VERSION + 1)) == VERSIONS, HOW_TO
    assert sorted(UPCASTERS) == list(range(1, SCHEMA_VERSION)), HOW_TO
    assert set(ADDED_IN) <= set(event_types())


def test_no_event_changes_its_fields_without_another_version() -> None:
    assert shapes() == recorded(SCHEMA_VERSION, "shapes.json"), HOW_TO


def test_the_newest_logs_have_every_event() -> None:
    assert {kind for kind, _ in payloads(SCHEMA_VERSION)} == set(event_types())


@pytest.mark.parametrize("version", VERSIONS)
def test_an_event_is_of_the_version_that_first_had_it(version: int) -> None:
    known = {kind for kind in event_types() if ADDED_IN.get(kind, 1) <= version}
    assert known == set(recorded(version, "shapes.json"))


@pytest.mark.parametrize(("version", "run"), RUNS)
def test_an_old_run_verifies_and_comes_to_what_it_came_to(version: int, run: str) -> None:
    before = contents(GOLDEN / f"v{version}")
    report = verify(GOLDEN / f"v{version}", run)
    # The summary beside the head is a cache, and may be another version's.
    odd = [warning for warning in report.warnings if "another version's" not in warning]
    assert (report.problem, odd) == (None, [])
    expected = recorded(version, "expected.json")[run]
    state = EventLog.open(GOLDEN / f"v{version}", run).state()
    assert json.loads(json.dumps(outcome(state))) == expected
    (listed,) = [r for r in list_runs(GOLDEN / f"v{version}") if r.run_id == run]
    assert (listed.status, listed.events) == (expected["status"], expected["head"][0] + 1)
    assert listed.best_trial == (expected["best"] or [None])[0]
    assert contents(GOLDEN / f"v{version}") == before


@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_night_verifies_and_comes_to_what_it_came_to(version: int) -> None:
    store = Store.at(GOLDEN / f"v{version}")
    for night in store.nights.run_ids():
        assert verify_night(store, night).ok
        expected = recorded(version, "expected.json")[night]
        assert json.loads(json.dumps(night_outcome(read_night(store, night)))) == expected


@pytest.mark.parametrize("version", VERSIONS)
def test_old_payloads_are_lifted_without_a_trace_and_all_of_them(version: int) -> None:
    for kind, payload in payloads(version):
        before = json.dumps(payload)
        lifted = upcast(kind, version, payload)
        assert json.dumps(payload) == before
        event_types()[kind].model_validate_json(json.dumps(lifted))
        assert upcast(kind, SCHEMA_VERSION, lifted) is lifted
        in_steps = payload
        for step in range(version, SCHEMA_VERSION):
            in_steps = UPCASTERS[step](kind, in_steps)
        assert in_steps == lifted


@pytest.mark.parametrize(("version", "run"), RUNS)
def test_an_old_run_is_written_on_and_compacted_with_its_old_events_as_they_were(
    version: int, run: str, tmp_path: Path
) -> None:
    store = copied(version, tmp_path)
    before = EventLog.open(store, run).read()
    with EventLog.open(store, run, writing=True) as log:
        log.append([Entry(NoteTaken(text="years later", author="test"))], log.next_seq)
        log.compact()
    after = EventLog.open(store, run).read()
    assert after[:-1] == before
    assert after[-1].schema_version == SCHEMA_VERSION
    assert verify(store, run).ok


@pytest.mark.parametrize("version", VERSIONS)
def test_an_old_run_is_resumed_and_forked(version: int, tmp_path: Path) -> None:
    store = copied(version, tmp_path)
    for run in Store.at(store).run_ids():
        log = EventLog.open(store, run)
        before = log.state()
        asked = ResumeRequest(run=run, store=str(store), out_dir=tmp_path / "out")
        if inputs_of_run(Store.at(store), run).signature.hashes == before.spec.signature:
            resume(asked, stage=but_export)
        else:  # its scores are another projection's
            with pytest.raises(SpecChanged) as refused:
                resume(asked, stage=but_export)
            assert f"refold fork {run}" in str(refused.value.hint)
        assert log.state() == before
        middle = (log.state().head_seq + 1) // 2
        request = ForkRequest(
            run=run,
            store=str(store),
            out_dir=tmp_path / "out",
            at_event=middle,
            settings=("search.budget.max_perf_calls=0",),
        )
        child = EventLog.open(store, fork(request, stage=but_export))
        assert child.read()[: middle + 1] == log.read()[: middle + 1]
        assert verify(store, child.run_id).ok
        assert child.state().finished is not None
