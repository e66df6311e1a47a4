"""Scores in processes of this machine.

Spawned, never forked: a forked worker inherits the log's lock and can outlive a killed parent with
it. Each worker talks over its own pipe and ends when that closes, however its parent ended.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from schemas.evaluation import Evaluation
from schemas.trial import NormalTrial
from tasks.scoring.engine import ScoringLost
from tasks.scoring.pieces import pieces
from tasks.scoring.question import Question, answer, ask, evaluations

GONE = (EOFError, ConnectionResetError, BrokenPipeError)
"""How a pipe says that there is nobody at its other end."""


def available_cpus() -> int:
    """CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class _Worker:
    process: SpawnProcess
    pipe: Connection


class Processes:
    """An engine: a pool of `workers` processes."""

    def __init__(self, workers: int) -> None:
        self._count = workers
        self._workers: list[_Worker] = []

    def start(self) -> None:
        """Starts the pool's processes."""
        context = multiprocessing.get_context("spawn")
        while len(self._workers) < self._count:
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs,), daemon=True)
            process.start()
            theirs.close()  # or its end would never be seen to close
            self._workers.append(_Worker(process, ours))

    def score(
        self, question: Question, trials: Sequence[NormalTrial]
    ) -> Iterator[tuple[int, Evaluation]]:
        """As `Engine.score`; a batch that does not reach its end ends the pool, which the next one
        starts again."""
        self.start()
        whole = False
        try:
            yield from self._answers(question, trials)
            whole = True
        finally:
            if not whole:  # what a worker has in hand must not be taken for an answer to the next
                self.close()

    def close(self) -> None:
        """Ends the workers; each after the piece it has in hand."""
        workers, self._workers = self._workers, []
        for worker in workers:
            worker.pipe.close()
        for worker in workers:
            worker.process.join()

    def _answers(
        self, question: Question, trials: Sequence[NormalTrial]
    ) -> Iterator[tuple[int, Evaluation]]:
        queue = iter(pieces(len(trials), self._count))
        busy: dict[Connection, tuple[_Worker, range]] = {}

        def feed(worker: _Worker) -> None:
            piece = next(queue, None)
            if piece is None:
                return
            busy[worker.pipe] = (worker, piece)
            try:
                worker.pipe.send(ask(question, trials[piece.start : piece.stop]))
            except GONE as error:
                raise _lost(worker) from error

        for worker in self._workers:
            feed(worker)
        while busy:
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                worker, piece = busy.pop(ready)
                try:
                    answered = ready.recv_bytes()
                except GONE as error:
                    raise _lost(worker) from error
                feed(worker)
                yield from zip(piece, evaluations(answered), strict=True)


def _lost(worker: _Worker) -> ScoringLost:
    worker.process.join()
    code = worker.process.exitcode
    how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
    return ScoringLost(f"scoring process {worker.process.pid} ended ({how}) with trials in hand")


def _work(pipe: Connection) -> None:
    """A worker: answers until its pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    while True:
        try:
            pipe.send_bytes(answer(*pipe.recv()))
        except GONE:
            return
