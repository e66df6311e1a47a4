"""What a batch asks of a worker, wherever that runs, and what comes back: plain bytes both ways.

A worker with other software would answer with other numbers. So a question says what its answers
depend on, and a worker that finds itself different refuses before it scores anything.
"""

import hashlib
import os
import pickle
import platform
import socket
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import projection
import schemas
import tasks
from projection.legality import normalise
from schemas.errors import EnvironmentMissing
from schemas.evaluation import Evaluation
from schemas.trial import NormalTrial, TrialConfig
from tasks.evaluators import Evaluator
from tasks.inputs import Inputs

SAME_EVERYWHERE: Final = "install the same Refold, Python and GEMM model on every worker"
MakeEvaluator = Callable[[], Evaluator]
"""Builds the evaluator inside a worker; must pickle."""
Software = Callable[[], Mapping[str, str]]
"""What scores depend on where it is called, in words by name; must pickle."""


@dataclass(frozen=True, slots=True)
class Question:
    """The half of a question that all pieces of a batch share. Holds no secret."""

    code: Mapping[str, str]
    """What a worker must be made of to read the rest."""
    software: Mapping[str, str]
    """What its answers must depend on."""
    pickled: bytes
    """Both makers: of the evaluator, and of what `software` is compared with."""


def question(inputs: Inputs) -> Question:
    """What is asked about trials of `inputs`."""
    return question_about(inputs.fresh_evaluator(), partial(_software, inputs.fresh()))


def question_about(make_evaluator: MakeEvaluator, software: Software = dict) -> Question:
    """What is asked of an evaluator, by workers whose `software` says what it says here."""
    return Question(made_of(), software(), pickle.dumps((make_evaluator, software)))


@lru_cache(maxsize=1)
def made_of() -> Mapping[str, str]:
    """Python and Refold as they are in this process: release, and a hash of the files."""
    return {
        "Python": ".".join(platform.python_version_tuple()[:2]),
        "Refold": _release(),
        "Refold's code": _hash_of_files(),
    }


def _software(inputs: Inputs) -> Mapping[str, str]:
    """The model behind scores and, against what no version tells, the baseline's own score."""
    signature = inputs.signature
    baseline = normalise(TrialConfig(), inputs.workload)
    answer = inputs.evaluator().score(baseline).model_dump_json()
    return {
        "GEMM model": f"{inputs.gemm.name} {inputs.gemm.version}",
        "signature": " ".join(signature.hashes.model_dump().values()),
        "score of the baseline": hashlib.sha256(answer.encode()).hexdigest()[:16],
    }


def ask(question: Question, trials: Sequence[NormalTrial]) -> tuple[object, ...]:
    """The arguments of `answer` for these trials."""
    shared = (dict(question.code), dict(question.software), question.pickled)
    return (*shared, pickle.dumps(list(trials)))


def answer(
    code: Mapping[str, str], software: Mapping[str, str], pickled: bytes, trials: bytes
) -> bytes:
    """In a worker: the trials' evaluations, or the error in their place. Never raises one."""
    try:
        _refuse_other(code, made_of())
        evaluator, here = _evaluator(pickled)
        _refuse_other(software, here)
        return pickle.dumps([evaluator.score(trial) for trial in pickle.loads(trials)])
    except Exception as error:  # noqa: BLE001 - raised again where the question came from
        return _pickled(error)


def evaluations(answered: bytes) -> list[Evaluation]:
    """What a worker's answer says.

    Raises:
        EnvironmentMissing: it runs other software than this process.
        Exception: what the evaluator raised.
    """
    said = pickle.loads(answered)
    if isinstance(said, Exception):
        raise said
    return list(said)


@lru_cache(maxsize=1)
def _evaluator(pickled: bytes) -> tuple[Evaluator, Mapping[str, str]]:
    """One per process and question: its caches are what makes the next piece cheap."""
    make_evaluator, software = pickle.loads(pickled)
    return make_evaluator(), software()


def _refuse_other(expected: Mapping[str, str], here: Mapping[str, str]) -> None:
    for name, value in expected.items():
        if here.get(name) != value:
            raise EnvironmentMissing(
                f"a worker ({this_worker()}) would score differently: its {name} is"
                f" {here.get(name, 'not known')}, here it is {value}",
                hint=SAME_EVERYWHERE,
            )


def this_worker() -> str:
    """This process, as a message names it."""
    return f"{socket.gethostname()}, process {os.getpid()}"


def _pickled(error: Exception) -> bytes:
    error.add_note(f"in {this_worker()}:\n{''.join(traceback.format_exception(error))}")
    try:
        answered = pickle.dumps(error)
        pickle.loads(answered)
    except Exception:  # noqa: BLE001 - an error may refuse to be pickled in any way it likes
        return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
    return answered


def _release() -> str:
    try:
        return version("refold")
    except PackageNotFoundError:
        return "source"


def _hash_of_files() -> str:
    """Of everything that is read to answer: code, and the shipped profiles and calibrations."""
    found = hashlib.sha256()
    for package in (projection, schemas, tasks):
        folder = Path(package.__file__ or "").parent
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".py", ".yaml"):
                found.update(str(path.relative_to(folder)).encode())
                found.update(path.read_bytes())
    return found.hexdigest()[:16]
