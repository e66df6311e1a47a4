"""The fit finds planted factors, keeps what no row speaks of, and is not carried off by one row."""

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from scipy.optimize import least_squares

from projection.calibration import FACTORS
from tasks.calibrate.fit import (
    NAMES,
    NOISE,
    SOURCE_SPREADS,
    Array,
    Fit,
    Unknowns,
    _robust,
    _weights,
    constrained,
    deviations,
    fit,
    solve,
    spreads,
    to_line,
)
from tests.tasks.calibrate.planted import Row, off_by, problem, row

SHAPES = (
    {"gemm_bf16": 800.0, "attention": 100.0, "memory_bound": 100.0},
    {"gemm_bf16": 300.0, "attention": 600.0, "memory_bound": 100.0},
    {"gemm_bf16": 300.0, "attention": 100.0, "memory_bound": 600.0},
    {"gemm_bf16": 100.0, "attention": 50.0, "memory_bound": 50.0, "host": 800.0},
    {"gemm_bf16": 500.0, "attention": 50.0, "memory_bound": 50.0, "node_link": 400.0},
    {"gemm_bf16": 400.0, "attention": 50.0, "memory_bound": 50.0, "cluster_link": 500.0},
    {"gemm_bf16": 20.0, "attention": 5.0, "memory_bound": 5.0},
)


def measured(truth: dict[str, float], repeats: int = 12) -> list[Row]:
    return [
        row(f"{i}.{j}", truth, group=f"{i}.{j}", **shape)
        for i, shape in enumerate(SHAPES)
        for j in range(repeats)
    ]


def values(result: Fit, gpu: str = "one") -> dict[str, float]:
    return result.values(gpu)


@settings(max_examples=20, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(
    st.fixed_dictionaries(
        {
            "gemm_bf16": st.floats(0.8, 1.1),
            "attention": st.floats(0.75, 1.3),
            "memory_bound": st.floats(0.75, 1.1),
            "host": st.floats(0.5, 2.0),
            "node_link": st.floats(0.75, 1.15),
            "cluster_link": st.floats(0.6, 1.05),
        }
    )
)
def test_planted_factors_are_found(truth: dict[str, float]) -> None:
    found = values(fit(problem(measured(truth))))
    for name, value in truth.items():
        # Each row has a source of its own here, and a source has a fabric of its own.
        loose = 0.15 if name in SOURCE_SPREADS else 0.08
        assert found[name] == pytest.approx(value, rel=loose), name
    for each in measured(truth, repeats=1):
        projected = problem([each]).project([each.seen], {"one": found})[0]
        assert projected == pytest.approx(each.seen.measured_ms, rel=0.06)


def test_a_factor_no_row_speaks_of_keeps_its_prior_and_is_named() -> None:
    result = fit(problem(measured({"gemm_bf16": 0.8})))
    origins = constrained(result, "one")
    for name in ("gemm_fp8", "experts", "optimizer", "overlap"):
        assert values(result)[name] == pytest.approx(FACTORS[name].prior, abs=1e-12)
        assert origins[name] == "prior"
    assert origins["gemm_bf16"] == "gpu"


def test_without_rows_every_factor_is_its_prior() -> None:
    result = fit(problem([]))
    assert values(result) == {name: spec.prior for name, spec in FACTORS.items()}
    assert set(constrained(result, "one").values()) == {"prior"}


def test_a_gpu_without_rows_has_its_kins_factors_in_part() -> None:
    truth = {"gemm_bf16": 0.8}
    result = fit(problem(measured(truth), gpus=("one", "two")))
    assert values(result, "one")["gemm_bf16"] == pytest.approx(0.8, rel=0.03)
    assert 0.8 < values(result, "two")["gemm_bf16"] < 0.9
    assert constrained(result, "two")["gemm_bf16"] == "family"


def test_more_rows_narrow_what_is_known() -> None:
    truth = {"gemm_bf16": 0.8}
    few, many = fit(problem(measured(truth, 1))), fit(problem(measured(truth, 20)))
    at = list(FACTORS).index("gemm_bf16")
    assert deviations(many, "one")[at] < deviations(few, "one")[at]


def test_one_wild_row_moves_the_fit_little() -> None:
    truth = {"gemm_bf16": 0.8}
    rows = measured(truth, 2)
    wild = [off_by(rows[0], 4.0), *rows[1:]]
    found = values(fit(problem(wild)))
    assert found["gemm_bf16"] == pytest.approx(values(fit(problem(rows)))["gemm_bf16"], rel=0.08)


def test_rows_of_one_group_do_not_outvote_other_groups() -> None:
    slow = [row(f"a{i}", {"gemm_bf16": 0.7}, group="crowd", gemm_bf16=1000.0) for i in range(100)]
    rest = [row(f"b{i}", {"gemm_bf16": 1.0}, group=f"g{i}", gemm_bf16=1000.0) for i in range(10)]
    assert values(fit(problem(slow + rest)))["gemm_bf16"] > 0.8


def test_no_factor_leaves_its_range() -> None:
    rows = [row(f"r{i}", {"gemm_bf16": 0.05}, gemm_bf16=1000.0) for i in range(30)]
    low, _ = FACTORS["gemm_bf16"].range
    assert values(fit(problem(rows)))["gemm_bf16"] == pytest.approx(low)
    negative = [row(f"s{i}", {"iteration_overhead_ms": -5.0}, gemm_bf16=20.0) for i in range(30)]
    assert values(fit(problem(negative)))["iteration_overhead_ms"] >= 0.0


def test_at_the_end_of_a_range_the_other_factors_fit_best_there() -> None:
    """What SciPy's general solver finds, handed the same rows: the bounds are part of the fit."""
    truth = {"gemm_bf16": 0.3, "attention": 0.9}
    result = fit(problem(measured(truth, repeats=3)))
    low = to_line("gemm_bf16", FACTORS["gemm_bf16"].range[0])
    assert result.at["one"][NAMES.index("gemm_bf16")] == pytest.approx(low)
    unknowns = Unknowns(result.problem)
    ends = unknowns.bounds()
    weighed = _weights(result.problem.observations) * _robust(result.linear.residuals) / NOISE
    rows = weighed[:, None] * unknowns.rows(result.linear.jacobian)
    away = result.linear.residuals - result.linear.jacobian @ result.linear.at["one"]

    def residuals(x: Array) -> Array:
        return np.concatenate([weighed * away + rows @ x, unknowns.priors() @ x])

    start = np.clip(np.zeros(len(unknowns)), *ends)
    found = least_squares(residuals, start, bounds=ends, method="dogbox", xtol=1e-12)
    moved = solve(result.problem, result.linear)["one"] / spreads()
    assert moved == pytest.approx(found.x[unknowns.gpu("one")], abs=1e-4)
