"""`refold sensitivity`: the surroundings of a run's recipe."""

import json
from pathlib import Path

import pytest

from storage import EventLog
from tests.end_to_end.made_once import Uninterrupted
from tests.end_to_end.searches import request_in, searched
from tests.flows.inline import refold_inline

pytestmark = pytest.mark.whole
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Uninterrupted:
    """A search of twelve seeds; tests only read its store."""
    return searched(request_in(tmp_path_factory.mktemp("around"), seed_budget=12))


def test_the_recipe_is_shown_with_a_row_per_step(made: Uninterrupted, capsys: Capture):
    before = len(EventLog.open(made.store, made.run_id).state().trials)
    code, out, err = refold_inline(capsys, "sensitivity", "latest", "--store", made.store)
    assert code == 0
    assert err == ""
    lines = out.splitlines()
    assert all(len(line) <= 100 for line in lines)
    state = EventLog.open(made.store, made.run_id).state()
    assert state.best is not None
    assert lines[0].split(maxsplit=1)[1] == f"trial {state.best.number} of run {made.run_id}"
    assert any(line.strip().startswith("mbs 1 → 2") for line in lines)
    assert any(line.startswith("held") and "gbs" in line for line in lines)
    assert len(state.trials) == before


def test_as_json_every_step_has_its_evaluation_or_its_reason(made: Uninterrupted, capsys: Capture):
    asked = ("sensitivity", made.run_id, "--store", made.store, "--trial", 0, "--json")
    code, out, _ = refold_inline(capsys, *asked)
    assert code == 0
    told = json.loads(out)
    assert (told["run_id"], told["trial"]) == (made.run_id, 0)
    scored = EventLog.open(made.store, made.run_id).state().trials[0].scored
    assert scored is not None
    base = scored.evaluation.tokens_per_s_per_gpu
    assert told["start"]["tokens_per_s_per_gpu"] == base
    for step in told["steps"]:
        assert (step["evaluation"] is None) == (step["refused"] is not None)
        if step["change"] is not None:
            rate = step["evaluation"]["tokens_per_s_per_gpu"]
            assert step["change"] == pytest.approx(rate / base - 1)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [(("latest", "--trial", "999"), "has no trial 999"), (("2099",), "2099")],
)
def test_what_is_not_there_is_named(
    arguments: tuple[str, ...], says: str, made: Uninterrupted, capsys: Capture
):
    code, out, err = refold_inline(capsys, "sensitivity", *arguments, "--store", made.store)
    assert code == 2
    assert out == ""
    assert says in err


def test_a_run_without_a_recipe_says_what_to_name(tmp_path: Path, capsys: Capture):
    none = searched(request_in(tmp_path, seed_budget=1))
    code, _, err = refold_inline(capsys, "sensitivity", none.run_id, "--store", none.store)
    assert code == 2
    assert "--trial" in err
