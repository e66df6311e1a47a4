"""`refold lineage`, `diff`, `runs` and `show` over runs that were forked: what they print."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from storage.layout import events_prefix
from tests.flows.inline import Ended, refold_inline
from tests.storage.forked_runs import (
    CHILD,
    OTHER,
    PARENT,
    REQUEST,
    child_run,
    other_run,
    parent_run,
)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("store")
    parent_run(root)
    child_run(root)
    other_run(root)
    return root


def asked(capsys: pytest.CaptureFixture[str], store: Path, *arguments: object) -> Ended:
    done = refold_inline(capsys, *arguments, "--store", store)
    assert (done.code, done.err) == (0, "")
    assert all(len(line) <= 100 for line in done.out.splitlines())
    return done


def test_lineage_says_who_proposed_it_and_what_it_beat(
    store: Path, capsys: pytest.CaptureFixture[str]
):
    shown = asked(capsys, store, "lineage", PARENT).out
    assert (
        f"#3 smaller ({json_of(capsys, store, PARENT)['trial']['trial_id']}), the recipe" in shown
    )
    assert "by rule planner, the call below: candidate 3" in shown
    assert "LLM call   0, planner, a/model" in shown
    assert "| … 8 more lines: --json has them all" in shown
    assert "the next best: #2 gbs384 (recompute), 3,002 tokens/s/GPU; this is 0.0 % faster" in shown
    assert "rejected   1 of 4 candidates: over_memory_cap 1" in shown


def json_of(capsys: pytest.CaptureFixture[str], store: Path, run: str) -> dict[str, object]:
    done = refold_inline(capsys, "lineage", run, "--json", "--store", store)
    found: dict[str, object] = json.loads(done.out)
    return found


def test_lineage_json_is_one_object_with_the_texts(store: Path, capsys: pytest.CaptureFixture[str]):
    found = json_of(capsys, store, CHILD)
    assert found["trial"]["carried_from"]["call"]["request"] == REQUEST  # type: ignore[index]
    assert {file["path"]: file["text"] for file in found["files"]} == {  # type: ignore[attr-defined]
        "w.yaml": "work: 1\n",
        "c.yaml": "c: 1\n",
    }


def test_lineage_of_a_fork_goes_up_to_the_parents_call(
    store: Path, capsys: pytest.CaptureFixture[str]
):
    shown = asked(capsys, store, "lineage", CHILD).out
    assert "carried    from trial #3 smaller of the run above:" in shown
    assert "changed cluster.memory_safety_margin: 0.1 → 0.05" in shown
    assert shown.index("by rule carried") < shown.index("LLM call")


def test_lineage_draws(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    files = tmp_path / "why.svg", tmp_path / "why.dot"
    drawn = ("--svg", files[0], "--dot", files[1], "--store", store)
    done = refold_inline(capsys, "lineage", CHILD, *drawn)
    assert done.err.splitlines() == [f"the graph is in {path}" for path in reversed(files)]
    assert ElementTree.parse(files[0]).getroot().tag.endswith("svg")
    assert files[1].read_text().startswith("digraph lineage {")


def test_lineage_of_what_is_damaged_ends_with_4(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    parent_run(tmp_path)
    first = min((tmp_path / events_prefix(PARENT)).iterdir())
    first.write_bytes(first.read_bytes()[:-5])
    for arguments in (("lineage", PARENT), ("diff", PARENT, PARENT), ("show", PARENT)):
        done = refold_inline(capsys, *arguments, "--store", tmp_path)
        assert (done.code, done.out) == (4, "")
        assert f"run {PARENT}, event 0" in done.err


def test_diff_of_a_fork_and_its_parent(store: Path, capsys: pytest.CaptureFixture[str]):
    shown = asked(capsys, store, "diff", PARENT, CHILD).out
    assert f"part      after event 20 of run {PARENT}" in shown
    assert f"B: {CHILD} changed cluster.memory_safety_margin: 0.1 → 0.05" in shown
    assert "first     that differs: #1, by its identity" in shown
    assert "B is +16.55 % from A" in shown


def test_diff_of_unrelated_runs(store: Path, capsys: pytest.CaptureFixture[str]):
    done = asked(capsys, store, "diff", CHILD, OTHER, "--json")
    found = json.loads(done.out)
    assert found["common_event"] is None
    assert found["first_difference"]["differs"] == "score"
    assert found["first_difference"]["trial"] == 1


def test_diff_of_a_run_with_itself_says_so(store: Path, capsys: pytest.CaptureFixture[str]):
    assert "identical they are one run" in asked(capsys, store, "diff", PARENT, PARENT).out


def test_runs_and_show_say_what_was_forked(store: Path, capsys: pytest.CaptureFixture[str]):
    assert "fork of …aaaaaaaa, event 20" in asked(capsys, store, "runs").out
    shown = asked(capsys, store, "show", CHILD).out
    assert f"fork      {CHILD} continues event 20 of {PARENT}" in shown
    assert "changed cluster.memory_safety_margin: 0.1 → 0.05" in shown
    assert "round     0 (seed): 2 proposed, the plan is done; best #1" in shown
    there = json.loads(asked(capsys, store, "show", CHILD, "--json").out)
    assert [fork["event"] for fork in there["forks"]] == [21]
    assert [entry["round"] for entry in there["rounds"]] == [0]
