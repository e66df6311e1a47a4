"""Evaluations without a search: many questions, one process, each file read once."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from projection.legality import check, normalise
from projection.memory.explain import MemoryExplanation
from projection.oracle import Oracle
from schemas.errors import RefoldError, UserError, shown
from schemas.evaluation import Evaluation
from schemas.legality import Verdict
from schemas.trial import NormalTrial, TrialConfig
from tasks.inputs import Inputs, resolve_pair
from tasks.settings import trial_config, with_global_batch

QUESTION_KEYS = frozenset({"workload", "cluster", "set"})


@dataclass(frozen=True, slots=True)
class Answer:
    """One line of output: an evaluation, or an object with `line` and `error`."""

    text: str
    failed: bool


class Projector:
    """Answers for configurations as a file would state them: warned about, not refused, where only
    a proposal would be refused."""

    def __init__(self, **search: Any) -> None:
        self._model_path: tuple[Path, ...] = search.pop("model_path", ())
        self._search = search
        self._pairs: dict[tuple[Path, Path], tuple[Inputs, Oracle]] = {}

    def project(self, workload: Path, cluster: Path, asked: TrialConfig) -> Evaluation:
        """Memory and time of `asked`; an illegal one has a reason and no numbers.

        Raises:
            UserError: a file cannot be used.
        """
        inputs, oracle = self._pair(workload, cluster)
        asked = with_global_batch(asked, inputs.workload, inputs.cluster)
        trial = normalise(asked, inputs.workload)
        verdict = check(trial, inputs.workload, inputs.cluster, inputs.search, proposal=False)
        if not verdict.legal:
            return illegal_evaluation(trial, verdict, inputs)
        answer = oracle.project(trial)
        if not verdict.warnings:
            return answer
        return answer.model_copy(update={"warnings": verdict.warnings + answer.warnings})

    def with_imbalance_limit(self, workload: Path, cluster: Path, answer: Evaluation) -> Evaluation:
        """`answer` with the largest expert imbalance that still fits, where there is one."""
        _, oracle = self._pair(workload, cluster)
        trial = NormalTrial.model_validate(answer.config)
        return answer.model_copy(update={"largest_moe_imbalance": oracle.largest_imbalance(trial)})

    def explain(self, workload: Path, cluster: Path, asked: TrialConfig) -> MemoryExplanation:
        """The memory of `asked` line by line.

        Raises:
            UserError: a file cannot be used, the configuration may not run, or the regime is the
                reference's, which has nothing to take apart.
        """
        inputs, oracle = self._pair(workload, cluster)
        if inputs.search.memory_regime == "paper":
            raise UserError("the paper's regime has two figures and no lines to explain")
        asked = with_global_batch(asked, inputs.workload, inputs.cluster)
        trial = normalise(asked, inputs.workload)
        verdict = check(trial, inputs.workload, inputs.cluster, inputs.search, proposal=False)
        if not verdict.legal:
            raise UserError("; ".join(violation.reason for violation in verdict.violations))
        return oracle.explain(trial)

    def _pair(self, workload: Path, cluster: Path) -> tuple[Inputs, Oracle]:
        known = self._pairs.get((workload, cluster))
        if known is None:
            inputs = resolve_pair(workload, cluster, self._model_path, **self._search)
            known = self._pairs[workload, cluster] = (inputs, inputs.oracle())
        return known


def illegal_evaluation(trial: NormalTrial, verdict: Verdict, inputs: Inputs) -> Evaluation:
    """What is said of a trial that may not run: which rules it breaks, and no numbers.

    It answers the question that was asked (source "simulate") without the oracle, which is why its
    provenance is "inferred".
    """
    return Evaluation(
        trial_id=trial.trial_id,
        config=trial.model_dump(mode="json"),
        legal=False,
        reason="; ".join(violation.reason for violation in verdict.violations),
        reason_code=verdict.violations[0].code,
        cap_gb=inputs.cluster.cap_gb,
        memory_regime=inputs.search.memory_regime,
        source="simulate",
        provenance="inferred",
        signature=inputs.signature.hashes,
        warnings=verdict.warnings,
    )


def answer_lines(
    projector: Projector, lines: Iterable[str], defaults: Mapping[str, str]
) -> Iterator[Answer]:
    """One answer per non-blank line, in order; a line that cannot be answered says so itself.

    `defaults` stand in for "workload" and "cluster" where a line leaves them out.
    """
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            evaluation = _answer(projector, line, defaults)
        except RefoldError as error:
            failure = {"line": number, "error": str(error), "hint": error.hint}
            yield Answer(json.dumps(failure, ensure_ascii=False), failed=True)
        else:
            yield Answer(evaluation.model_dump_json(), failed=False)


def _answer(projector: Projector, line: str, defaults: Mapping[str, str]) -> Evaluation:
    try:
        line.encode()
        question = json.loads(line)
    except UnicodeEncodeError as error:
        raise UserError(f"not UTF-8 text (column {error.start + 1})") from error
    except json.JSONDecodeError as error:
        raise UserError(f"not JSON: {error.msg} at column {error.colno}") from error
    except RecursionError as error:
        raise UserError("nested too deep to be a question") from error
    except ValueError as error:
        raise UserError(f"a number in it is too long: {error}") from error
    if not isinstance(question, dict):
        raise UserError("not a JSON object")
    if unknown := sorted(question.keys() - QUESTION_KEYS):
        raise UserError(f"unknown key {shown(unknown[0])}; a line has workload, cluster and set")
    question = {**defaults, **question}
    paths = []
    for key in ("workload", "cluster"):
        if not isinstance(question.get(key), str):
            raise UserError(f"{key!r} must be the path of a file")
        paths.append(Path(question[key]))
    wanted = question.get("set") or {}
    if not isinstance(wanted, dict):
        raise UserError("'set' must be an object of knobs")
    return projector.project(paths[0], paths[1], trial_config(wanted, "set"))
