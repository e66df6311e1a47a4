"""The answer of a search: the best trial, what it beat, and what a person must still check."""

from schemas.evaluation import Evaluation
from schemas.model import FrozenModel
from schemas.trial import NormalTrial


class Recipe(FrozenModel):
    """The winner, and the claims that go with it."""

    run_id: str
    trial: int
    """Trial number within the run."""
    trial_id: str
    rule: str
    config: NormalTrial
    evaluation: Evaluation
    changed: dict[str, tuple[object, object]]
    """Knobs that differ from the workload: (workload's value, recipe's value)."""
    baseline_tokens_per_s_per_gpu: float | None
    baseline_fits: bool | None
    runner_up_trial: int | None
    runner_up_tokens_per_s_per_gpu: float | None
    best_seed_trial: int | None
    headroom_gb: float
    caveats: tuple[str, ...] = ()
    head_seq: int
    head_hash: str
