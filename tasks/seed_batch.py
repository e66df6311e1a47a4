"""Round 0's candidates: the seed plan in order, numbered and in normal form."""

from collections.abc import Sequence
from dataclasses import dataclass

from projection.legality import normalise
from schemas.trial import Candidate, NormalTrial
from schemas.workload import Workload


@dataclass(frozen=True, slots=True)
class NumberedTrial:
    """A candidate with its number in the run and its normal form."""

    number: int
    candidate: Candidate
    trial: NormalTrial

    @property
    def trial_id(self) -> str:
        """Identity of the configuration."""
        return self.trial.trial_id


def seed_batch(plan: Sequence[Candidate], workload: Workload) -> tuple[NumberedTrial, ...]:
    """The plan, numbered; trial 0 is its first candidate, the baseline."""
    return tuple(
        NumberedTrial(number, candidate, normalise(candidate.config, workload))
        for number, candidate in enumerate(plan)
    )
