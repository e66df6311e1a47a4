"""What a seed plan begins with beside its own: the best known recipe, and what a fork takes along
when its parent's scores do not survive, its candidates."""

from collections.abc import Sequence

from projection.legality import normalise
from schemas.events import RecipeRecalled
from schemas.trial import Candidate
from schemas.workload import Workload
from storage.ranking import rank
from storage.state import Trial

CARRIED = "carried"
"""The rule that proposes a parent's candidates."""
KNOWN_BEST = "known best"
"""The rule that proposes the best known recipe."""
BESIDE_THE_BUDGET = frozenset({CARRIED, KNOWN_BEST})
"""Rules whose seeds count for no seed budget."""


def with_known(
    seeds: Sequence[Candidate], known: Sequence[Candidate], workload: Workload
) -> list[Candidate]:
    """`seeds` with the `known` ones after the baseline. A candidate both have stands once, where
    and as it is known; the baseline stays what it is."""
    if not known:
        return list(seeds)
    baseline, *others = seeds
    taken = {normalise(baseline.config, workload).trial_id}
    merged = [baseline]
    for candidate in (*known, *others):
        trial_id = normalise(candidate.config, workload).trial_id
        if trial_id not in taken:
            taken.add(trial_id)
            merged.append(candidate)
    return merged


def carried_from(trial: Trial, carried: Sequence[Trial]) -> Trial | None:
    """The trial of the parent that `trial` proposes again; None: it proposes none."""
    if trial.proposed.rule != CARRIED:
        return None
    asked = (trial.proposed.requested, trial.proposed.tag)
    for known in _in_order(carried):
        if (known.proposed.requested, known.proposed.tag) == asked:
            return known
    return None


def carried_candidates(carried: Sequence[Trial]) -> list[Candidate]:
    """A parent's candidates, its best first.

    What was asked is carried, as a difference from the workload, not what it came to: the workload
    may be another one.
    """
    return [_candidate(trial) for trial in _in_order(carried)]


def recalled_candidates(recalled: RecipeRecalled | None) -> list[Candidate]:
    """The best known recipe, if one was recalled."""
    if recalled is None:
        return []
    why = (
        f"the best of run {recalled.run}, trial {recalled.trial}, on this signature:"
        f" {recalled.tokens_per_s_per_gpu:,.0f} tokens/s/GPU"
    )
    return [Candidate(config=recalled.requested, rule=KNOWN_BEST, why=why, tag="known-best")]


def _in_order(carried: Sequence[Trial]) -> list[Trial]:
    """Winners first, in their order; then the others as they were proposed; never the baseline."""
    scores = [(trial.score, trial) for trial in carried]
    scored = [(rank(trial.number, score), trial) for score, trial in scores if score is not None]
    best = [trial for _, trial in sorted(scored, key=lambda pair: pair[0])]
    others = [trial for trial in carried if trial.score is None]
    return [trial for trial in (*best, *others) if trial.number != 0]


def _candidate(trial: Trial) -> Candidate:
    return Candidate(
        config=trial.proposed.requested,
        rule=CARRIED,
        why=f"trial {trial.number} of the run this one was forked from: {trial.proposed.why}",
        tag=trial.proposed.tag,
    )
