"""Statistics of projected against measured."""

from itertools import combinations

import pytest
import scipy.stats
from hypothesis import assume, given
from hypothesis import strategies as st

from schemas.evaluation import Evaluation, SignatureHashes
from tasks.evidence import evidence
from tasks.fidelity.predict import Predicted
from tasks.fidelity.statistics import accuracy, judged, ranking

ROW = next(row for row in evidence() if row.source == "paper-points")
SIGNATURE = SignatureHashes(model="0", cluster="0", stack="0")
FIGURES = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 20)), min_size=4, max_size=12)


def predicted(measured: float, projected: float, name: str = "row") -> Predicted:
    row = ROW.model_copy(
        update={"id": name, "tokens_per_s_per_gpu": measured, "iteration_ms": None, "sweep": "one"}
    )
    evaluation = Evaluation(
        trial_id="0",
        config={},
        legal=True,
        cap_gb=1,
        iteration_ms=1.0,
        tokens_per_s_per_gpu=projected,
        source="simulate",
        provenance="analytic",
        signature=SIGNATURE,
    )
    return Predicted(row, evaluation)


def sweep(*figures: tuple[float, float]) -> list[Predicted]:
    return [predicted(real, ours, f"row-{at}") for at, (real, ours) in enumerate(figures)]


def test_errors_are_summed_up_with_and_without_their_sign() -> None:
    found = accuracy([-0.1, 0.2, 0.0, 0.1, -0.5])
    assert found.rows == 5
    assert found.mean == pytest.approx(0.18)
    assert found.median == pytest.approx(0.1)
    assert found.bias == pytest.approx(-0.06)
    assert found.p90 == pytest.approx(0.38)
    assert found.worst == -0.5


@given(FIGURES)
def test_correlations_are_those_of_scipy(figures: list[tuple[int, int]]) -> None:
    measured, projected = zip(*figures, strict=True)
    assume(len({*measured}) > 1 and len({*projected}) > 1)
    found = ranking("one", sweep(*figures))
    assert found.spearman == pytest.approx(scipy.stats.spearmanr(measured, projected).statistic)
    assert found.kendall == pytest.approx(scipy.stats.kendalltau(measured, projected).statistic)


@given(FIGURES)
def test_every_pair_measured_apart_is_in_order_or_listed(figures: list[tuple[int, int]]) -> None:
    measured, projected = zip(*figures, strict=True)
    assume(len({*measured}) > 1 and len({*projected}) > 1)
    found = ranking("one", sweep(*figures))
    apart = sum(a != b for a, b in combinations(measured, 2))
    assert found.pairs == apart == found.concordant + len(found.discordant)
    assert all(pair.gap > 0 for pair in found.discordant)
    assert 0 <= found.regret_top3 <= found.regret_top1 < 1


def test_regret_is_what_the_projected_best_loses() -> None:
    found = ranking("one", sweep((100, 50), (90, 60), (80, 55), (70, 10)))
    assert found.regret_top1 == pytest.approx(0.1)
    assert found.regret_top3 == 0


def test_a_tie_of_ours_is_not_luck() -> None:
    found = ranking("one", sweep((100, 60), (50, 60), (40, 30), (30, 20)))
    assert found.regret_top1 == pytest.approx(0.5)
    assert found.discordant[0].gap == pytest.approx(1.0)


def test_pairs_close_together_do_not_count_as_far() -> None:
    found = ranking("one", sweep((100, 1), (95, 2), (50, 0.5), (20, 0.2)))
    assert found.concordance_far == 1.0
    assert [pair.faster for pair in found.discordant] == ["row-0"]


def test_the_offset_is_what_all_rows_share() -> None:
    found = ranking("one", sweep(*((x, 1.2 * x) for x in (10.0, 20.0, 30.0, 40.0))))
    assert found.offset == pytest.approx(1.2)
    assert found.offset_cv == pytest.approx(0.0, abs=1e-12)


def test_few_rows_or_rows_alike_have_no_order() -> None:
    assert judged(sweep((1, 1), (2, 2), (3, 3))).rankings == ()
    assert judged(sweep((1, 5), (2, 5), (3, 5), (4, 5))).rankings == ()


def test_a_row_in_ms_ranks_by_its_rate() -> None:
    fast, slow = predicted(1, 1000.0), predicted(1, 1000.0)
    rows = [
        Predicted(p.row.model_copy(update={"iteration_ms": ms, "tokens_per_s_per_gpu": None}), e)
        for p, e, ms in ((fast, fast.evaluation, 0.5), (slow, slow.evaluation, 2.0))
    ]
    assert [row.measured_rate for row in rows] == [2000.0, 500.0]
    assert [row.error for row in rows] == [1.0, -0.5]
