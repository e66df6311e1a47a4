"""What a fork takes along when its scores do not survive: its parent's candidates."""

from collections.abc import Sequence

from projection.legality import normalise
from schemas.trial import Candidate
from schemas.workload import Workload
from storage.ranking import rank
from storage.state import Trial

CARRIED = "carried"
"""The rule that proposes them."""


def with_carried(
    seeds: Sequence[Candidate], carried: Sequence[Trial], workload: Workload
) -> list[Candidate]:
    """`seeds` with the parent's candidates after the baseline, the parent's best first.

    What was asked is carried, as a difference from the workload, not what it came to: the workload
    may be another one. A candidate both sides have stands once, as carried.
    """
    if not carried:
        return list(seeds)
    baseline, *others = seeds
    taken = {normalise(baseline.config, workload).trial_id}
    merged = [baseline]
    for candidate in (*_candidates(carried), *others):
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


def _candidates(carried: Sequence[Trial]) -> list[Candidate]:
    return [_candidate(trial) for trial in _in_order(carried)]


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
