"""A left-out group is judged by factors that never saw it."""

from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.calibrate.fit import fit, from_line, solve
from tasks.calibrate.leave_out import LeftOut, band, each_gpu, each_group
from tests.tasks.calibrate.planted import problem, row


def test_the_odd_group_out_is_far_off_when_left_out_and_nearer_when_seen() -> None:
    rows = [row(f"r{i}", {"gemm_bf16": 0.8}, group=f"g{i}", gemm_bf16=1000.0) for i in range(10)]
    rows.append(row("odd", {"gemm_bf16": 0.95}, group="odd", gemm_bf16=1000.0))
    found = {group.group: group for group in each_group(fit(problem(rows)))}
    odd = found["odd"]
    assert odd.errors[0] == pytest.approx(0.95 / 0.8 - 1, abs=0.02)
    assert abs(odd.fitted[0]) < abs(odd.errors[0])
    assert all(abs(found[f"g{i}"].errors[0]) < 0.05 for i in range(10))


def test_leaving_a_group_out_equals_a_fit_without_it() -> None:
    rows = [
        row(f"r{i}", {"gemm_bf16": 0.75 + 0.02 * i}, group=f"g{i}", gemm_bf16=1000.0)
        for i in range(8)
    ]
    whole = fit(problem(rows))
    quick = solve(whole.problem, whole.linear, lambda seen: seen.group == "g7")["one"]
    again = fit(problem(rows[:-1])).at["one"]
    assert from_line("gemm_bf16", quick[0]) == pytest.approx(
        from_line("gemm_bf16", again[0]), rel=0.01
    )


def test_a_gpu_left_out_is_judged_by_its_kin() -> None:
    kin = [row(f"k{i}", {"gemm_bf16": 0.8}, gpu="two", gemm_bf16=1000.0) for i in range(20)]
    own = [row("own", {"gemm_bf16": 0.8}, gpu="one", gemm_bf16=1000.0)]
    result = fit(problem(kin + own, gpus=("one", "two")))
    found = {group.gpu: group for group in each_gpu(result)}
    assert -0.12 < found["one"].errors[0] < 0  # most of the way from 1.0, and not all of it


def group(*errors: float) -> LeftOut:
    return LeftOut("a group", "one", "bf16", tuple(map(str, errors)), errors, errors, {})


def test_the_band_holds_eight_rows_of_ten_and_every_group_counts_as_one() -> None:
    assert band([group(0.1), group(-0.3), group(0.2)]) == 0.3
    assert band([group(0.01 * i) for i in range(1, 101)]) == pytest.approx(0.8)
    assert band([group(0.1), group(0.2), group(0.3), group(0.4), group(0.5)]) == 0.4
    assert band([group(*(0.01 * i for i in range(1, 11)))]) == pytest.approx(0.08)
    crowd = group(*[0.01] * 96)
    assert band([crowd, group(0.2), group(-0.5), group(0.3)]) == 0.5


@given(st.lists(st.lists(st.floats(-1, 5), min_size=1, max_size=6), min_size=1, max_size=12))
def test_no_narrower_band_holds_as_much(errors: list[list[float]]) -> None:
    groups = [group(*each) for each in errors]

    def held(width: float) -> float:
        return fmean(fmean(abs(e) <= width for e in each) for each in errors)

    width = band(groups)
    assert held(width) >= 0.8 - 1e-9
    assert all(held(abs(e)) < 0.8 for each in errors for e in each if abs(e) < width)
