"""docs/fidelity.md is what the code says."""

import pytest

from benchmarks.fidelity_page import PAGE, page, stored
from tasks.evidence import evidence
from tasks.fidelity.cases import left_out
from tasks.fidelity.predict import Predicted, Projector

SAMPLE = 8
"""Every so manieth row of the stored report is projected again."""
REFRESH = "run `python -m benchmarks.fidelity_page`"


def test_the_page_is_that_of_the_stored_report() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(stored()), REFRESH


def test_the_stored_report_has_every_comparable_row() -> None:
    here = {row.id for row in evidence() if left_out(row) is None}
    assert {row.id for row in stored().rows} == here, REFRESH


def test_the_stored_projections_are_those_of_this_tree() -> None:
    projector, rows = Projector(), {row.id: row for row in evidence()}
    compared = 0
    for kept in stored().rows[::SAMPLE]:
        row = rows[kept.id]
        answer = projector.row(row)
        assert isinstance(answer, Predicted), kept.id
        if projector.gemm_models[row.gpu] == stored().gemm[row.gpu]:
            assert answer.projected == pytest.approx(kept.before, rel=1e-3), REFRESH
            compared += 1
    assert compared > 50
