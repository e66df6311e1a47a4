"""The picture of a run shows what its state holds."""

from dataclasses import replace

from schemas.evaluation import PROVENANCE_ORDER
from schemas.events import TrialInvalidated
from tasks.draw_trials import draw_trials
from tasks.picture import picture_of
from tests.end_to_end.made_once import Uninterrupted


def test_every_decided_trial_is_on_it_with_what_became_of_it(uninterrupted: Uninterrupted):
    state = uninterrupted.state
    marks = {mark.number: mark for mark in picture_of(state).marks}
    assert set(marks) == set(state.trials)
    for number, trial in state.trials.items():
        mark, evaluation = marks[number], trial.evaluation
        assert (mark.outcome == "rejected") == (trial.rejected is not None)
        if evaluation is not None:
            assert mark.memory_gb == evaluation.memory_per_gpu_gb
        if trial.scored is not None:
            assert mark.tokens_per_s_per_gpu == trial.scored.evaluation.tokens_per_s_per_gpu
            assert mark.outcome == ("fits" if trial.scored.evaluation.fits else "over")


def test_its_incumbent_is_the_states(uninterrupted: Uninterrupted):
    assert picture_of(uninterrupted.state).incumbents()[-1][0] == uninterrupted.state.incumbent


def test_an_invalidated_trial_is_on_it_and_not_its_incumbent(uninterrupted: Uninterrupted):
    state = uninterrupted.state
    best = state.best
    assert best is not None
    wrong = TrialInvalidated(
        trial_id=best.proposed.trial_id,
        why="another driver",
        author="a test",
        incumbent=None,
        incumbent_trial_id=None,
        incumbent_tokens_per_s_per_gpu=None,
    )
    trials = {**state.trials, best.number: replace(best, invalidated=wrong)}
    picture = picture_of(replace(state, trials=trials))
    assert {mark.number: mark.outcome for mark in picture.marks}[best.number] == "invalidated"
    assert picture.incumbents()[-1][0] == state.ranked()[1].number
    assert draw_trials(picture) != draw_trials(picture_of(state))


def test_trials_in_flight_are_not_on_it(uninterrupted: Uninterrupted):
    trials = dict(uninterrupted.state.trials)
    trials[3] = replace(trials[3], rejected=None, scored=None, decided_at=None)
    marks = picture_of(replace(uninterrupted.state, trials=trials)).marks
    assert 3 not in [mark.number for mark in marks]


def test_it_says_as_of_which_event_and_how_sure_it_is(uninterrupted: Uninterrupted):
    picture = picture_of(uninterrupted.state)
    assert f"as of event {uninterrupted.state.head_seq}" in picture.subtitle
    tiers = {e.provenance for t in uninterrupted.state.trials.values() if (e := t.evaluation)}
    assert min(tiers, key=PROVENANCE_ORDER.index) in picture.subtitle
    assert draw_trials(picture)


def test_one_synthetic_number_makes_the_picture_synthetic(uninterrupted: Uninterrupted):
    trials = dict(uninterrupted.state.trials)
    scored = trials[0].scored
    assert scored is not None
    made_up = scored.evaluation.model_copy(update={"provenance": "synthetic"})
    trials[0] = replace(trials[0], scored=scored.model_copy(update={"evaluation": made_up}))
    assert "synthetic" in picture_of(replace(uninterrupted.state, trials=trials)).subtitle


def test_before_anything_is_decided_it_can_be_drawn(uninterrupted: Uninterrupted):
    empty = replace(uninterrupted.state, trials={})
    assert "nothing evaluated" in picture_of(empty).subtitle
    assert draw_trials(picture_of(empty))
