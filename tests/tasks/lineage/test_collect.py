"""P13 and the auditor: everything behind a trial, and nothing that was not known then."""

import hashlib
from pathlib import Path

import pytest

from schemas.errors import DamagedLog, UserError
from storage import Entry, EventLog, Store
from storage.canonical import sha256_hex
from storage.layout import blobs_prefix, events_prefix
from tasks.lineage import lineage_of_trial
from tests.storage.builders import trial_number, write
from tests.storage.forked_runs import (
    ANSWER,
    CHILD,
    OTHER,
    PARENT,
    REQUEST,
    child_run,
    forked,
    invalidated,
    other_run,
    parent_run,
    search,
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    parent_run(tmp_path)
    return Store.at(tmp_path)


def test_the_recipe_and_what_it_beat(store: Store):
    found = lineage_of_trial(store, PARENT)
    assert (found.is_recipe, found.trial.trial, found.trial.round) == (True, 3, 1)
    assert [c.trial for c in found.ranked] == [3, 2, 0]
    assert found.baseline is not None
    assert found.best_seed is not None
    assert found.next_best is not None
    assert (found.baseline.trial, found.best_seed.trial, found.next_best.trial) == (0, 2, 2)
    assert found.next_best.lead_percent == pytest.approx(100 * (3003 / 3002 - 1))
    assert (found.candidates, found.rejected) == (4, {"over_memory_cap": 1})
    assert found.trial.changed == {"gbs": (128, 512)}


def test_files_and_hashes_are_what_the_store_holds(store: Store):
    found = lineage_of_trial(store, PARENT)
    assert [(f.path, f.role) for f in found.files] == [
        ("c.yaml", "cluster"),
        ("w.yaml", "workload"),
    ]
    for file in found.files:
        assert file.sha256 == hashlib.sha256(file.text.encode()).hexdigest()
    assert [file.sha256_as_read for file in found.files] == [None, "f" * 64]
    assert found.presets == {"refold:a.yaml": "e" * 64}
    assert all(part.hash_holds for part in found.signature.values())
    assert found.stack_origin == {"rocm": "declared"}
    assert found.anchored is not None
    assert (found.anchored.seq, found.anchored.hash) == (found.as_of_event, found.head_hash)


def test_the_call_that_proposed_it_with_what_was_sent_and_answered(store: Store):
    call = lineage_of_trial(store, PARENT).trial.call
    assert call is not None
    assert (call.role, call.model, call.request, call.answer) == (
        "planner",
        "a/model",
        REQUEST,
        ANSWER,
    )
    assert call.request_sha256 == hashlib.sha256(REQUEST.encode()).hexdigest()
    assert lineage_of_trial(store, PARENT, trial=2).trial.call is None


def test_notes_that_name_it_and_no_others(store: Store):
    texts = [mention.text for mention in lineage_of_trial(store, PARENT).trial.mentions]
    assert texts == ["#3 looks good", "trial 3!", "it is smaller"]


def test_a_carried_trial_leads_to_the_call_in_the_parent(store: Store):
    child_run(store.root)
    found = lineage_of_trial(store, CHILD)
    above = found.trial.carried_from
    assert (found.trial.trial, found.trial.rule, found.trial.call) == (1, "carried", None)
    assert above is not None
    assert (above.trial, above.place.run_id) == (3, PARENT)
    assert above.call is not None
    assert [(step.parent, step.inherits) for step in found.forks] == [(PARENT, False)]
    assert [(e.place.run_id, e.trial, e.same_question) for e in found.trial.evaluations] == [
        (PARENT, 3, False),
        (CHILD, 1, True),
    ]
    assert all(e.in_lineage for e in found.trial.evaluations)


def test_a_carried_trial_is_followed_through_any_number_of_forks(store: Store):
    child_run(store.root)
    state = EventLog.open(store, CHILD).state()
    proposals = [trial.proposed for trial in state.trials.values()]
    verdicts = [trial.scored for trial in state.trials.values() if trial.scored is not None]
    with forked(store.root, OTHER, CHILD, state.head_seq, inherits=False, begin=9) as log:
        search(log, list(zip(proposals, verdicts, strict=True)), 1)
    story = lineage_of_trial(store, OTHER).trial
    chain = [story]
    while story.carried_from is not None:
        story = story.carried_from
        chain.append(story)
    assert [(link.place.run_id, link.trial, link.rule) for link in chain] == [
        (OTHER, 1, "carried"),
        (CHILD, 1, "carried"),
        (PARENT, 3, "planner"),
    ]


def test_a_fork_that_inherits_names_the_run_that_proposed_it(store: Store):
    last = lineage_of_trial(store, PARENT).as_of_event
    with forked(store.root, CHILD, PARENT, last - 1, inherits=True) as log:
        log.anchor_head()
    found = lineage_of_trial(store, CHILD)
    assert (found.run_id, found.trial.place.run_id, found.trial.trial) == (CHILD, PARENT, 3)
    assert found.trial.call is not None
    assert found.trial.carried_from is None


def test_p13_as_of_an_event_is_what_was_known_then(store: Store):
    before = lineage_of_trial(store, PARENT)
    with EventLog.open(store, PARENT, writing=True) as log:
        write(log, [[Entry(invalidated(3, 2), 1, 3)]])
        log.anchor_head()
    other_run(store.root)
    now = lineage_of_trial(store, PARENT)
    assert (now.trial.trial, now.trial.corrections) == (2, ())
    wrong = lineage_of_trial(store, PARENT, trial=3).trial
    assert wrong.invalidated
    assert [(c.why, c.in_lineage) for c in wrong.corrections] == [("a wrong driver", True)]
    then = lineage_of_trial(store, PARENT, as_of=before.as_of_event)
    assert then.trial == before.trial
    assert then.model_copy(update={"anchored": before.anchored}) == before
    early = lineage_of_trial(store, PARENT, as_of=8)
    assert (early.trial.trial, early.status, early.candidates) == (2, "open", 3)


def test_p13_before_a_fork_began_it_is_the_run_above_that_knew(store: Store):
    before = lineage_of_trial(store, PARENT)
    child_run(store.root)
    assert lineage_of_trial(store, CHILD, as_of=before.as_of_event) == before


def test_evaluations_in_other_runs_are_found_and_marked(store: Store):
    other_run(store.root)
    found = lineage_of_trial(store, PARENT).trial.evaluations
    assert [(e.place.run_id, e.in_lineage, e.same_question) for e in found] == [
        (PARENT, True, True),
        (OTHER, False, True),
    ]


def test_a_correction_in_another_run_is_told(store: Store):
    child_run(store.root)
    with EventLog.open(store, PARENT, writing=True) as log:
        write(log, [[Entry(invalidated(3, 2), 1, 3)]])
    (correction,) = lineage_of_trial(store, CHILD).trial.corrections
    assert (correction.place.run_id, correction.in_lineage) == (PARENT, False)


def test_a_damaged_other_run_is_named_and_does_not_stand_in_the_way(store: Store):
    other_run(store.root)
    (segment, *_) = sorted((store.root / events_prefix(OTHER)).iterdir())
    segment.write_bytes(b"no segment")
    (line,) = lineage_of_trial(store, PARENT).unread
    assert OTHER in line


def test_a_damaged_event_or_blob_of_the_run_above_is_refused(store: Store):
    child_run(store.root)
    segments = sorted((store.root / events_prefix(PARENT)).iterdir())
    texts = [store.root / blobs_prefix(PARENT) / sha256_hex(t.encode()) for t in (REQUEST, ANSWER)]
    for path in (segments[0], segments[-1], *texts):
        whole = path.read_bytes()
        path.write_bytes(whole[:-3])
        with pytest.raises(DamagedLog):
            lineage_of_trial(store, CHILD)
        path.write_bytes(whole)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"trial": 9}, "has no trial 9 as of event"),
        ({"as_of": 99}, "has no event 99"),
        ({"as_of": 2}, "has no recipe as of event 2"),
        ({"as_of": 2, "trial": 0}, "it has none yet"),
    ],
)
def test_what_there_is_not_is_refused(asked: dict[str, int], says: str, store: Store):
    with pytest.raises(UserError, match=says):
        lineage_of_trial(store, PARENT, **asked)  # type: ignore[arg-type]


def test_a_rejected_trial_has_a_story_too(store: Store):
    found = lineage_of_trial(store, PARENT, trial=1)
    assert not found.is_recipe
    (only,) = found.trial.evaluations
    assert (only.verdict, only.code, only.source) == ("rejected", "over_memory_cap", "memory_only")
    assert found.trial.trial_id == trial_number(1).trial_id
