"""Scores large batches in processes of its own.

Spawned, never forked: a forked worker inherits the log's lock and can outlive a killed parent with
it. Each worker talks over its own pipe and ends when that closes, however its parent ended.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

from schemas.evaluation import Evaluation
from schemas.trial import NormalTrial
from tasks.evaluators import Evaluator
from tasks.score import ScoreMany, one_by_one

MakeEvaluator = Callable[[], Evaluator]
"""Builds the evaluator inside a worker; must pickle."""

PAYS_FROM = 5000
"""Trials per worker below which starting it (importing, and pricing with cold caches) costs more
than it saves."""
CHUNK = 32
"""Trials sent to a worker at a time: a message costs about as much as a cheap evaluation."""


def workers_worth(num_trials: int, cpus: int) -> int:
    """Processes a batch of `num_trials` deserves; 0: score it in this one."""
    workers = min(cpus, num_trials // PAYS_FROM)
    return workers if workers > 1 else 0


def best_way_to_score(
    evaluator: Evaluator, make_evaluator: MakeEvaluator, num_trials: int
) -> ScoreMany:
    """In this process, or in a pool when the batch is large enough to pay for one."""
    workers = workers_worth(num_trials, available_cpus())
    if not workers:
        return one_by_one(evaluator)
    return partial(score_in_pool, make_evaluator, workers)


def available_cpus() -> int:
    """CPUs this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def score_in_pool(
    make_evaluator: MakeEvaluator, num_workers: int, trials: Sequence[NormalTrial]
) -> Iterator[tuple[int, Evaluation]]:
    """(index, evaluation) of each trial, as they arrive."""
    chunks = iter([range(i, min(i + CHUNK, len(trials))) for i in range(0, len(trials), CHUNK)])
    with _workers(make_evaluator, num_workers) as connections:
        busy: dict[Connection, range] = {}

        def feed(connection: Connection) -> None:
            chunk = next(chunks, None)
            if chunk is not None:
                connection.send([trials[index] for index in chunk])
                busy[connection] = chunk

        for connection in connections:
            feed(connection)
        while busy:
            for ready in wait(list(busy)):
                assert isinstance(ready, Connection)
                chunk = busy.pop(ready)
                answer = _receive(ready)
                feed(ready)
                yield from zip(chunk, answer, strict=True)


@contextmanager
def _workers(make_evaluator: MakeEvaluator, count: int) -> Iterator[list[Connection]]:
    context = multiprocessing.get_context("spawn")
    pairs = [context.Pipe() for _ in range(count)]
    processes: list[SpawnProcess] = []
    try:
        for _, theirs in pairs:
            process = context.Process(target=_work, args=(theirs, make_evaluator), daemon=True)
            process.start()
            theirs.close()  # or its end would never be seen to close
            processes.append(process)
        yield [ours for ours, _ in pairs]
    finally:
        for ours, _ in pairs:
            ours.close()
        for process in processes:
            process.join()


def _receive(connection: Connection) -> list[Evaluation]:
    answer = connection.recv()
    if isinstance(answer, BaseException):
        raise answer
    return list(answer)


def _work(connection: Connection, make_evaluator: MakeEvaluator) -> None:
    """A worker: evaluates chunks until its pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    evaluator = make_evaluator()
    while True:
        try:
            trials = connection.recv()
        except EOFError:
            return
        try:
            answer: object = [evaluator.score(trial) for trial in trials]
        except Exception as error:  # noqa: BLE001 - raised again in the parent
            answer = error
        try:
            connection.send(answer)
        except BrokenPipeError:
            return
