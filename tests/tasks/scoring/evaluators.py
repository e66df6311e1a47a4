"""Evaluators that misbehave, for workers in other processes to build."""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from schemas.evaluation import Evaluation
from schemas.trial import NormalTrial
from tasks.inputs import Inputs


class Crashes:
    """An evaluator with a bug."""

    def memory(self, trial: NormalTrial) -> Evaluation:
        raise NotImplementedError

    def score(self, trial: NormalTrial) -> Evaluation:
        raise ZeroDivisionError(f"a bug at mbs {trial.mbs}")


class Obstinate(Exception):
    """An error that pickles and cannot be read back."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one}, {two}")


class CrashesObstinately(Crashes):
    """Its error does not survive the way home."""

    def score(self, trial: NormalTrial) -> Evaluation:
        raise Obstinate("stays", "where it is")


@dataclass
class DiesOnce:
    """The first process that is asked for `trial_id` is killed; `mark` tells the next ones."""

    inputs: Inputs
    trial_id: str
    mark: Path

    def __post_init__(self) -> None:
        self._evaluator = self.inputs.evaluator()

    def memory(self, trial: NormalTrial) -> Evaluation:
        raise NotImplementedError

    def score(self, trial: NormalTrial) -> Evaluation:
        if trial.trial_id == self.trial_id and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return self._evaluator.score(trial)


@dataclass
class Slow:
    """Leaves a file named after its process, and takes its time."""

    inputs: Inputs
    folder: Path
    seconds: float

    def __post_init__(self) -> None:
        self._evaluator = self.inputs.evaluator()

    def memory(self, trial: NormalTrial) -> Evaluation:
        raise NotImplementedError

    def score(self, trial: NormalTrial) -> Evaluation:
        (self.folder / str(os.getpid())).touch()
        time.sleep(self.seconds)
        return self._evaluator.score(trial)
