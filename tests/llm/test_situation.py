"""What a model is shown: complete where it can be, and bounded."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.opening import inputs_of_spec
from flows.requests import TuneRequest
from flows.tune import tune
from schemas.legality import AxisValue
from storage import EventLog
from tasks.llm.situation import axis_values, situation
from tests.end_to_end.cutting import but_export
from tests.end_to_end.files import write_inputs
from tests.llm.tuner import expanded, section


@pytest.mark.parametrize(
    ("values", "baseline", "shown"),
    [
        (range(57), 0, "0* 1..56"),
        (range(8), 3, "0 1 2 3* 4..7"),
        ([1, 2, 4, 8], 4, "1 2 4* 8"),
        ([False, True], True, "false true*"),
        (["none", "full"], "none", "none* full"),
    ],
)
def test_long_lists_of_integers_are_ranges(
    values: list[AxisValue], baseline: AxisValue, shown: str
):
    assert " ".join(axis_values(list(values), baseline)) == shown


@given(st.sets(st.integers(0, 60), min_size=1), st.data())
def test_a_range_says_the_same_values(values: set[int], data: st.DataObject):
    ordered = sorted(values)
    baseline = data.draw(st.sampled_from(ordered))
    shown = axis_values(ordered, baseline)
    assert [n for s in shown for n in expanded(s.rstrip("*"))] == [str(n) for n in ordered]
    assert [s for s in shown if s.endswith("*")] == [f"{baseline}*"]


def test_of_a_long_search_the_best_and_the_latest_trials_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    workload, cluster = write_inputs(tmp_path)
    request = TuneRequest(
        workload=workload, target_cluster=cluster, out_dir=tmp_path / "out", mode="dry",
        store=str(tmp_path / "store"), gemm_backend="tile", seed_only=True,
    )  # fmt: skip
    log = EventLog.open(tmp_path / "store", tune(request, stage=but_export))
    state, inputs = log.state(), inputs_of_spec(log, log.state().spec)

    def shown() -> list[str]:
        text = section(situation(state, inputs.workload, inputs.cluster) + "\n.", "TRIALS")
        return [line.split()[0] for line in text.strip().splitlines()]

    numbers = [f"#{number}" for number in state.trials]
    assert shown() == numbers
    monkeypatch.setattr("tasks.llm.situation._BEST", 2)
    monkeypatch.setattr("tasks.llm.situation._LATEST", 3)
    best = {f"#{trial.number}" for trial in state.ranked()[:2]}
    kept = [n for n in numbers if n in {"#0", *best, *numbers[-3:]}]
    assert len(kept) < len(numbers)
    assert shown() == [*kept, str(len(numbers) - len(kept))]
