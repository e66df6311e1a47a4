"""What a search left out, or found odd on its way, is in its log."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from flows.requests import TuneRequest
from flows.tune import tune
from storage import EventLog, State
from tests.end_to_end.cutting import but_export
from tests.end_to_end.searches import request_in


def state_of(request: TuneRequest, run_id: str) -> State:
    assert request.store is not None
    return EventLog.open(Path(request.store), run_id).state()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda data: data[:-1], "is damaged; evaluating again"),
        (lambda data: b"", "was damaged; overwritten"),
    ],
)
def test_a_damaged_cache_entry_is_said_and_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil, says: str
):  # type: ignore[no-untyped-def]
    request = request_in(tmp_path, mode="dry", seed_budget=6)
    tune(request, stage=but_export)
    entries = sorted((tmp_path / "store" / "evaluations").rglob("*.json"))
    assert entries
    entries[0].write_bytes(spoil(entries[0].read_bytes()))
    capsys.readouterr()
    state = state_of(request, tune(request, stage=but_export))
    notes = [note.text for note in state.notes if note.author == "evaluation cache"]
    assert [says in note for note in notes].count(True) == 1
    assert all(f"warning: {note}" in capsys.readouterr().err for note in notes[:1])


def test_what_the_cluster_file_leaves_open_is_in_the_summary(tmp_path: Path):
    request = request_in(tmp_path, mode="dry", seed_budget=6)
    cluster = request.target_cluster
    cluster.write_text(cluster.read_text().replace("hbm_capacity_gb: 288.0", "pinned: {}"))
    tune(request)
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert any("hbm_capacity_gb: not set" in line for line in summary["cluster_warnings"])


def test_a_deployment_cannot_ask_for_no_seed_at_all(tmp_path: Path):
    with pytest.raises(ValidationError, match="greater than or equal to 1"):
        TuneRequest(workload=tmp_path, target_cluster=tmp_path, seed_budget=0)
