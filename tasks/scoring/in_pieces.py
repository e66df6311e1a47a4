"""What engines on a cluster share: a batch goes out in pieces, and each comes back once."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from schemas.evaluation import Evaluation
from schemas.trial import NormalTrial
from tasks.scoring.pieces import pieces
from tasks.scoring.question import Question, ask, evaluations


class ScoresInPieces(ABC):
    """An engine, but for how its cluster is started, asked and heard."""

    @abstractmethod
    def start(self) -> str | None:
        """As `Engine.start`."""

    def score(
        self, question: Question, trials: Sequence[NormalTrial]
    ) -> Iterator[tuple[int, Evaluation]]:
        """As `Engine.score`."""
        self.start()
        pending: dict[Any, range] = {}
        try:
            for piece in pieces(len(trials), self._at_a_time()):
                pending[self._sent(ask(question, trials[piece.start : piece.stop]))] = piece
            while pending:
                done = self._finished(list(pending))
                for sent in sorted(done, key=lambda sent: pending[sent].start):
                    answered = self._result(sent)
                    yield from zip(pending.pop(sent), evaluations(answered), strict=True)
        finally:
            if pending:
                self._call_off(list(pending))

    @abstractmethod
    def _at_a_time(self) -> int:
        """Pieces the cluster scores at the same time."""

    @abstractmethod
    def _sent(self, asked: tuple[Any, ...]) -> Any:
        """What stands for the answer to a piece that the cluster was asked for."""

    @abstractmethod
    def _finished(self, pending: list[Any]) -> Iterable[Any]:
        """Those that are done, at least one; each once, since it is taken off the list then."""

    @abstractmethod
    def _result(self, sent: Any) -> bytes:
        """The answer."""

    @abstractmethod
    def _call_off(self, pending: list[Any]) -> None:
        """What is queued is not asked any more; of a cluster that is gone, nothing is."""
