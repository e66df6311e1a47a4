"""The engine of a run's batches: chosen once, started by the first that needs it."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from schemas.evaluation import Evaluation
from schemas.scoring import Scoring
from schemas.trial import NormalTrial
from tasks.evaluators import Evaluator
from tasks.inputs import Inputs
from tasks.score import ScoreMany, one_by_one
from tasks.scoring.engine import Engine
from tasks.scoring.processes import Processes, available_cpus
from tasks.scoring.question import question
from tasks.scoring.with_dask import Dask
from tasks.scoring.with_ray import Ray

PAYS_FROM: Final = 5000
"""Trials per worker below which starting it (importing, and pricing with cold caches) costs more
than it saves."""


def _silent(_: str) -> None: ...


def workers_worth(num_trials: int, cpus: int) -> int:
    """Processes a batch of `num_trials` deserves; 0: score it in this one."""
    workers = min(cpus, num_trials // PAYS_FROM)
    return workers if workers > 1 else 0


class Scorer:
    """Scores a run's batches where `choice` says; without one, as `auto`.

    A batch of one trial is scored in this process whatever was chosen: there is nothing to share.
    """

    def __init__(
        self,
        choice: Scoring | None = None,
        folder: Path = Path(),
        say: Callable[[str], None] = _silent,
    ) -> None:
        self._choice = choice or Scoring(engine="auto")
        self._folder, self._say = folder, say
        self._engine: Engine | None = None

    def connect(self) -> None:
        """Reaches the cluster that was named, if one was: before there is a run to interrupt.

        Raises:
            EnvironmentMissing: it cannot be reached, or has no worker.
        """
        if self._choice.address is not None:
            self._started(0)

    def score_many(self, evaluator: Evaluator, inputs: Inputs) -> ScoreMany:
        """Scores trials of `inputs`; `evaluator` is theirs, in this process."""
        return partial(self._score, evaluator, inputs)

    def close(self) -> None:
        """Ends whatever was started."""
        if self._engine is not None:
            self._engine.close()

    def _score(
        self, evaluator: Evaluator, inputs: Inputs, trials: Sequence[NormalTrial]
    ) -> Iterator[tuple[int, Evaluation]]:
        if len(trials) <= 1 or not self._workers_for(len(trials)):
            return one_by_one(evaluator)(trials)
        return self._started(len(trials)).score(question(inputs), trials)

    def _workers_for(self, num_trials: int) -> int:
        if self._choice.engine == "inline":
            return 0
        cpus = self._choice.workers or available_cpus()
        return workers_worth(num_trials, cpus) if self._choice.engine == "auto" else cpus

    def _started(self, num_trials: int) -> Engine:
        if self._engine is None:
            self._engine = self._made(self._workers_for(num_trials))
        if (news := self._engine.start()) is not None:
            self._say(news)
        return self._engine

    def _made(self, workers: int) -> Engine:
        choice = self._choice
        if choice.engine == "dask":
            return Dask(workers, choice.address, self._folder)
        if choice.engine == "ray":
            return Ray(workers, choice.address)
        return Processes(workers)
