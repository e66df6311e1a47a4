"""How a search ends: with its best fitting trial, or with what bound and what would loosen it."""

from dataclasses import replace
from typing import Any

import pytest

from schemas.events import TrialProposed, TrialRejected, TrialScored
from storage.state import Trial
from tasks.finish import binding_constraints, finish
from tests.builders import cluster
from tests.end_to_end.made_once import Uninterrupted
from tests.tasks.seeds import mixtral_inputs, numbered

pytestmark = pytest.mark.whole

INPUTS = mixtral_inputs()


def trial(number: int, needs_gb: float | None, code: str = "does_not_fit") -> Trial:
    """Trial `number`, rejected; with a memory-only evaluation when `needs_gb` is given."""
    seed = numbered(number, INPUTS.workload, mbs=1)
    memory = None
    if needs_gb is not None:
        memory = INPUTS.evaluator().memory(seed.trial)
        memory = memory.model_copy(update={"memory_per_gpu_gb": needs_gb, "fits": False})
    proposed = TrialProposed(
        trial_id=seed.trial_id,
        requested=seed.candidate.config,
        config=seed.trial,
        rule="test",
        why="a test asks",
        tag="t",
        call=None,
    )
    rejected = TrialRejected(
        trial_id=seed.trial_id, code=code, reason=f"because of {code}", evaluation=memory
    )
    return Trial(number, 0, proposed, ANY_TIME, rejected=rejected)


ANY_TIME: Any = None


def test_the_recipe_is_the_incumbent(uninterrupted: Uninterrupted):
    outcome = finish(uninterrupted.state, INPUTS.cluster, None)
    best = uninterrupted.state.best
    assert best is not None
    assert outcome.recipe_trial == best.number
    assert outcome.recipe_trial_id == best.proposed.trial_id
    assert outcome.binding_constraints == ()


def test_without_an_incumbent_every_candidate_is_accounted_for(uninterrupted: Uninterrupted):
    rejected = {n: t for n, t in uninterrupted.state.trials.items() if t.rejected is not None}
    without = replace(uninterrupted.state, incumbent=None, trials=rejected)
    outcome = finish(without, INPUTS.cluster, None)
    assert outcome.recipe_trial is None
    counts = [int(line.partition("(")[2].split()[0]) for line in outcome.binding_constraints]
    assert sum(counts) == len(rejected)


@pytest.mark.parametrize(
    ("needs_gb", "usable_gb", "says"),
    [
        (270.0, 288.0, "optimization.memory_safety_margin 0.062 would admit it"),
        (287.9, 288.0, "optimization.memory_safety_margin 0 would admit it"),
        (300.0, 288.0, "no margin admits it"),
    ],
)
def test_the_smallest_loosening_that_admits_the_leanest_is_named(
    needs_gb: float, usable_gb: float, says: str
):
    (line,) = binding_constraints([trial(1, needs_gb + 50), trial(2, needs_gb)], cluster())
    assert line.startswith("memory (2 candidates): the leanest, trial 2, needs")
    assert says in line


def test_a_margin_that_is_named_does_admit():
    needs_gb = 263.4
    (line,) = binding_constraints([trial(1, needs_gb)], cluster())
    margin = float(line.partition("memory_safety_margin ")[2].split()[0])
    assert cluster(memory_safety_margin=margin).cap_gb >= needs_gb
    assert cluster(memory_safety_margin=margin + 0.001).cap_gb < needs_gb


def test_a_capacity_below_the_gpus_own_is_what_to_raise():
    small = cluster(hbm_capacity_gb=192)
    (line,) = binding_constraints([trial(1, 250.0)], small)
    assert "optimization.hbm_capacity_gb 250 would admit it" in line


def test_a_memory_bound_that_was_only_inferred_has_no_leanest():
    (line,) = binding_constraints([trial(1, None, "implied_oom")], cluster())
    assert line == "memory (1 candidate): none fits the cap of 259.2 GB"


def test_rules_are_listed_with_their_reason_the_most_frequent_first():
    trials = [
        trial(1, None, "rare_rule"),
        trial(2, None, "frequent_rule"),
        trial(3, None, "frequent_rule"),
    ]
    lines = binding_constraints(trials, cluster())
    assert [line.split()[0] for line in lines] == ["frequent_rule", "rare_rule"]
    assert "because of frequent_rule" in lines[0]


def test_scored_kind_is_not_confused_with_rejections(uninterrupted: Uninterrupted):
    over = next(
        t
        for t in uninterrupted.state.trials.values()
        if isinstance(t.scored, TrialScored) and not t.scored.evaluation.fits
    )
    (line,) = binding_constraints([over], INPUTS.cluster)
    assert line.startswith("memory (1 candidate): the leanest, trial 0")
