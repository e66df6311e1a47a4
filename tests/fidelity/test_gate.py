"""What was right must not become wrong: projections against the stored ones."""

import copy
import json
from typing import Any

import pytest

from benchmarks.gate import BASELINE, Comparison, compare, report
from tasks.evidence import evidence

STORED = json.loads(BASELINE.read_text(encoding="utf-8"))
ROWS = {row.id: row for row in evidence()}


@pytest.fixture(scope="module")
def now() -> Comparison:
    return compare(STORED)


@pytest.mark.slow
def test_nothing_that_was_right_is_wrong(now: Comparison) -> None:
    assert now.regressions == [], "\n".join(report(now))
    assert now.compared > 700


def test_the_baseline_has_enough_configurations() -> None:
    assert len(STORED["configurations"]) >= 450
    assert all(point["iteration_ms"] for point in STORED["configurations"].values())


def only(*names: str) -> dict[str, Any]:
    """A baseline of some rows as this tree projects them."""
    return {
        "rows": {name: copy.deepcopy(STORED["rows"][name]) for name in names},
        "configurations": {},
    }


def compared(stored: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Comparison:
    """Against the stored projections of the same rows as if this tree made them."""
    here = {name: STORED["rows"][name] for name in stored["rows"]}
    monkeypatch.setattr("benchmarks.gate._rows", here.items)
    return compare(stored)


def off(name: str, error: float) -> float:
    """A projection of row `name` that far off."""
    row = ROWS[name]
    figure = row.iteration_ms or row.tokens_per_s_per_gpu
    assert figure is not None
    return figure * (1 + error)


WRONG = max(
    (name for name, point in STORED["rows"].items() if ROWS[name].source == "vtrain"),
    key=lambda name: abs(STORED["rows"][name]["projected"] / off(name, 0) - 1),
)
RIGHT = min(
    (name for name, point in STORED["rows"].items() if ROWS[name].source == "vtrain"),
    key=lambda name: abs(STORED["rows"][name]["projected"] / off(name, 0) - 1),
)


def test_a_row_that_was_right_and_is_wrong_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = only(WRONG)
    stored["rows"][WRONG]["projected"] = off(WRONG, 0.02)
    (line,) = compared(stored, monkeypatch).regressions
    assert line.startswith(f"{WRONG}: was +2.0% off, is ")


def test_a_row_that_was_wrong_may_move(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = only(WRONG)
    stored["rows"][WRONG]["projected"] = off(WRONG, -0.4)
    found = compared(stored, monkeypatch)
    assert found.regressions == []
    assert [line for _, line in found.drift if line.startswith(WRONG)] != []


def test_drift_within_what_is_right_is_listed_and_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = only(RIGHT)
    stored["rows"][RIGHT]["projected"] = off(RIGHT, 0.1)
    found = compared(stored, monkeypatch)
    assert (found.regressions, len(found.drift)) == ([], 1)
    assert any("1 moved" in line for line in report(found))


def test_rows_that_were_in_order_must_stay_so(monkeypatch: pytest.MonkeyPatch) -> None:
    fast, slow = "mixtral22b-32gpu-r00_b1", "mixtral22b-32gpu-r14_b1"
    stored = only(fast, slow)
    here = copy.deepcopy(stored["rows"])
    here[fast]["projected"], here[slow]["projected"] = 4000.0, 4100.0
    monkeypatch.setattr("benchmarks.gate._rows", here.items)
    assert f"{fast}, {slow}: were in order, are not" in compare(stored).regressions


def test_a_row_that_is_refused_now_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = only(RIGHT)
    here = {RIGHT: {**stored["rows"][RIGHT], "projected": None}}
    monkeypatch.setattr("benchmarks.gate._rows", here.items)
    assert compare(stored).regressions == [f"{RIGHT}: had a projection and is refused"]


def test_another_gemm_model_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = only(RIGHT)
    stored["rows"][RIGHT] |= {"gemm": "another", "projected": 1.0}
    found = compared(stored, monkeypatch)
    assert (found.skipped, found.compared, found.regressions) == (1, 0, [])
