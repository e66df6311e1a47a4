"""A recipe audited from a bundle alone: a real search, forked, its store then gone."""

import json
import shutil
from pathlib import Path

import pytest

from flows.forking import fork
from flows.requests import ForkRequest
from storage import EventLog, Store
from tests.end_to_end.cutting import but_export
from tests.end_to_end.made_once import Uninterrupted
from tests.flows.inline import refold_inline


def test_a_bundle_of_a_fork_is_all_an_auditor_needs(
    uninterrupted: Uninterrupted,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(uninterrupted.store, "store")
    request = ForkRequest(
        run=uninterrupted.run_id,
        store="store",
        seed_budget=26,
        out_dir=tmp_path / "out",
    )
    run = fork(request, stage=but_export)
    best = EventLog.open(Store.at(Path("store")), run).state().best
    assert best is not None
    bundled = refold_inline(capsys, "lineage", run, "--bundle", "b", "--json", "--store", "store")
    assert bundled.code == 0
    shutil.rmtree("store")
    for name in (run, uninterrupted.run_id):
        assert refold_inline(capsys, "verify", name, "--store", "b").code == 0
    alone = refold_inline(capsys, "lineage", run, "--json", "--store", "b")
    assert json.loads(alone.out) == json.loads(bundled.out)
    assert json.loads(alone.out)["trial"]["trial"] == best.number
    assert refold_inline(capsys, "show", run, "--store", "b").code == 0
    exported = refold_inline(capsys, "export", run, "--store", "b", "--out-dir", "again")
    assert exported.code == 0
    assert json.loads((tmp_path / "again" / "summary.json").read_text())["run_id"] == run
    assert refold_inline(capsys, "verify", run, "--store", "b").code == 0
