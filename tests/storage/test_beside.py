"""What lies beside the events is held to them."""

import json
from pathlib import Path

import pytest

from storage import EventLog, verify
from storage.compaction_mark import write_mark
from storage.heads import read_anchor, write_anchor
from storage.layout import head_key
from storage.store import Store
from storage.summary import SUMMARY_VERSION
from tests.storage.forked_runs import PARENT, parent_run


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("best_tokens_per_s_per_gpu", 9001.0),
        ("status", "open"),
        ("workload_name", "another"),
        ("scored", 99),
    ],
)
def test_a_summary_that_says_something_else_is_named(field: str, value: object, tmp_path: Path):
    parent_run(tmp_path)
    store = Store.at(tmp_path)
    anchor = read_anchor(store.backend, PARENT)
    assert anchor is not None
    summary = anchor.known_summary()
    assert summary is not None
    assert verify(store, PARENT).ok
    write_anchor(store.backend, PARENT, 0, anchor.head, summary.model_copy(update={field: value}))
    problem = verify(store, PARENT).problem
    assert problem is not None
    assert "its anchored head summarises other events" in problem


def test_a_summary_of_another_version_is_a_warning(tmp_path: Path):
    parent_run(tmp_path)
    head = tmp_path / head_key(PARENT)
    body = json.loads(head.read_text())
    head.write_text(json.dumps(body | {"summary_version": SUMMARY_VERSION + 1, "sha256": None}))
    report = verify(tmp_path, PARENT)
    assert report.ok
    assert any("another version" in warning for warning in report.warnings)


@pytest.mark.parametrize("by", [-1, 1, 30])
def test_a_mark_that_speaks_of_another_event_is_named(by: int, tmp_path: Path):
    parent_run(tmp_path)
    store = Store.at(tmp_path)
    with EventLog.open(store, PARENT, writing=True) as log:
        log.compact()
        last = log.next_seq - 1
    assert verify(store, PARENT).ok
    write_mark(store.backend, PARENT, last + by)
    problem = verify(store, PARENT).problem
    assert problem is not None
    assert "compaction mark" in problem


def test_a_compaction_killed_at_its_mark_is_no_damage(tmp_path: Path):
    parent_run(tmp_path)
    store = Store.at(tmp_path)
    write_mark(store.backend, PARENT, EventLog.open(store, PARENT).state().head_seq)
    assert verify(store, PARENT).ok
