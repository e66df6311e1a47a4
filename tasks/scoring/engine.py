"""What every engine is: somewhere to send a batch, kept for the batches that follow."""

from collections.abc import Iterator, Sequence
from typing import Protocol

from schemas.errors import RefoldError
from schemas.evaluation import Evaluation
from schemas.trial import NormalTrial
from tasks.scoring.question import Question


class ScoringLost(RefoldError):
    """The processes or the cluster that scored are gone; what they had answered is kept."""

    exit_code = 3

    def __init__(self, what: str, *, hint: str | None = None) -> None:
        go_on = "refold resume latest goes on; with --scoring inline it needs no other process"
        super().__init__(what, hint=hint or go_on)


class Engine(Protocol):
    """Scores batches elsewhere. It starts what it needs with the first, and keeps it until closed.

    Each trial is answered once or the batch ends in an error; what an abandoned batch left queued
    is called off.
    """

    def start(self) -> str | None:
        """Makes it ready, if it is not; what was started or reached, in words, where it is news.

        Raises:
            EnvironmentMissing: it cannot be started or reached.
        """
        ...

    def score(
        self, question: Question, trials: Sequence[NormalTrial]
    ) -> Iterator[tuple[int, Evaluation]]:
        """(index, evaluation) of each trial, as they arrive.

        Raises:
            EnvironmentMissing: a worker runs other software than this process.
            ScoringLost: the workers are gone.
            Exception: what the evaluator raised.
        """
        ...

    def close(self) -> None:
        """Ends what was started here."""
        ...
