"""Round 0: the deterministic seed plan.

Nine rules in order, each a generator of candidates that change the workload's own configuration;
what is illegal is left out with its reason, and what is the same configuration as an earlier
candidate is left out before any budget is counted.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from projection.legality import LegalSpace, normalise, short_request
from schemas.cluster import Cluster
from schemas.legality import Violation
from schemas.search import SearchSpec
from schemas.trial import Candidate
from schemas.workload import Workload
from tasks.seed_plan.anchor import Anchor
from tasks.seed_plan.grid import grid
from tasks.seed_plan.neighbourhood import neighbourhood
from tasks.seed_plan.order import order_for_budget
from tasks.seed_plan.schedules import schedules
from tasks.seed_plan.single_axis import baseline, dp_sharding, fp8, moe_communication, recompute
from tasks.seed_plan.stack import stack

SEED_RULES: tuple[Callable[[Anchor], Iterator[Candidate]], ...] = (
    baseline,
    recompute,
    moe_communication,
    fp8,
    stack,
    schedules,
    neighbourhood,
    dp_sharding,
    grid,
)
"""The rules, in the order of what is expected of them."""


@dataclass(frozen=True, slots=True)
class SkippedSeed:
    """A candidate a rule would have proposed, and the legality rule it breaks."""

    candidate: Candidate
    violation: Violation


@dataclass(frozen=True, slots=True)
class SeedPlan:
    """All seeds by rule, the baseline first, no two of them the same configuration."""

    candidates: tuple[Candidate, ...]
    skipped: tuple[SkippedSeed, ...]


def plan_seeds(workload: Workload, cluster: Cluster, search: SearchSpec) -> SeedPlan:
    """Every rule's candidates, in the order of the rules.

    The first is the baseline exactly as the file says but for pinned knobs, legal or not; all
    others are legal proposals. Each candidate's request is what differs from the workload.

    Raises:
        ClusterError: the search pins a knob that does not exist, or nothing legal has the pins.
    """
    anchor = Anchor.of(LegalSpace(workload, cluster, search))
    candidates: dict[str, Candidate] = {}
    skipped: dict[str, SkippedSeed] = {}
    for rule in SEED_RULES:
        for proposed in rule(anchor):
            trial = normalise(proposed.config, workload)
            if trial.trial_id in candidates:
                continue
            violation = anchor.violation(proposed.config) if candidates else None
            if violation is not None:
                skipped.setdefault(trial.trial_id, SkippedSeed(proposed, violation))
                continue
            short = {"config": short_request(trial, workload)}
            candidates[trial.trial_id] = proposed.model_copy(update=short)
    return SeedPlan(tuple(candidates.values()), tuple(skipped.values()))


def skipped_notes(plan: SeedPlan) -> tuple[str, ...]:
    """One line per rule that refused seeds: how many, and an example. Most refused first."""
    examples: dict[str, SkippedSeed] = {}
    for seed in plan.skipped:
        examples.setdefault(seed.violation.code, seed)
    counts = Counter(seed.violation.code for seed in plan.skipped)
    return tuple(
        f"{code}: {count} {'seed' if count == 1 else 'seeds'} not proposed, for example"
        f" {examples[code].candidate.tag}: {examples[code].violation.reason}"
        for code, count in counts.most_common()
    )


def seed_plan(workload: Workload, cluster: Cluster, search: SearchSpec) -> list[Candidate]:
    """The seeds in the order in which a budget takes them, the baseline first.

    Raises:
        ClusterError: the search pins a knob that does not exist.
    """
    return order_for_budget(plan_seeds(workload, cluster, search).candidates)


__all__ = [
    "SEED_RULES",
    "SeedPlan",
    "SkippedSeed",
    "order_for_budget",
    "plan_seeds",
    "seed_plan",
    "skipped_notes",
]
