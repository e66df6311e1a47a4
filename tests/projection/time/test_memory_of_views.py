"""What the time model remembers between trials stays bounded."""

from itertools import islice

import pytest

from projection.legality import LegalSpace
from projection.oracle import Oracle
from projection.time import model
from tests.builders import cluster, small_moe
from tests.projection.time.cases import SIGNATURE, TILE


def test_chunks_are_counted_over_all_views_and_forgetting_them_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A view is one entry of its memo, however many chunks it holds."""
    workload, on = small_moe(gbs=64), cluster(2)
    trials = list(islice(LegalSpace(workload, on, TILE), 0, 4000, 20))

    def times() -> tuple[list[float], Oracle]:
        oracle = Oracle(workload, on, TILE, signature=SIGNATURE)
        return [oracle.project(trial).iteration_ms or 0.0 for trial in trials], oracle

    expected, plenty = times()
    assert _chunks(plenty) > 40
    monkeypatch.setattr(model, "CHUNK_LIMIT", 10)
    again, scarce = times()
    assert again == expected
    assert _chunks(scarce) <= 20


def _chunks(oracle: Oracle) -> int:
    return sum(len(view.chunks) for view in oracle._time_model()._views.values())
