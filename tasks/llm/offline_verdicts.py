"""What became, or would have become, of proposals: answered beside a run, which is only read.

A verdict comes from the record where there is one, else from the oracle, once per configuration.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from projection.legality import check, normalise
from schemas.evaluation import Evaluation
from schemas.legality import Verdict
from schemas.trial import NormalTrial
from storage.ranking import eligible
from storage.state import State, Trial
from tasks.evaluators import Evaluator
from tasks.inputs import Inputs
from tasks.llm.proposals import read_candidates
from tasks.llm.situation import knobs_to_ask, setting
from tasks.score import Known

Outcome = Literal["malformed", "duplicate", "illegal", "does_not_fit", "scored"]
_RULE = "offline"


@dataclass(frozen=True, slots=True)
class Ruling:
    """The verdict on one proposal."""

    words: str
    """The proposal: its knobs apart from the baseline, or what was sent."""
    outcome: Outcome
    reason: str
    valid: bool
    """Well-formed and legal, new or not."""
    tokens_per_s_per_gpu: float | None = None
    """Its score, if it may win and is new."""


class OfflineVerdicts:
    """Rules on proposals to one run.

    Args:
        inputs: of the run.
        recorded: trials of it, decided at any time.
        known: what else has been evaluated under the same signature.
    """

    def __init__(self, inputs: Inputs, recorded: Iterable[Trial], known: Known) -> None:
        self._inputs = inputs
        self._known = known
        self._recorded: dict[str, Evaluation] = {
            trial.proposed.trial_id: trial.evaluation
            for trial in recorded
            if trial.evaluation is not None and trial.invalidated is None
        }
        self._evaluator: Evaluator | None = None

    def rule_on(self, sent: Sequence[Any], state: State) -> list[Ruling]:
        """A ruling per proposal of an answer, in order, as of `state`."""
        tried = {trial.proposed.trial_id: number for number, trial in state.trials.items()}
        rulings: list[Ruling] = []
        for position, item in enumerate(sent):
            candidates, refused = read_candidates([item], _RULE)
            if refused:
                rulings.append(Ruling(refused[0].sent, "malformed", refused[0].why, valid=False))
                continue
            trial = normalise(candidates[0].config, self._inputs.workload)
            words = self._words(trial)
            if trial.trial_id in tried:
                where = tried[trial.trial_id]
                reason = (
                    f"is trial {where}" if where >= 0 else f"is proposal {-where} of this answer"
                )
                rulings.append(Ruling(words, "duplicate", reason, valid=self._check(trial).legal))
                continue
            tried[trial.trial_id] = -(position + 1)
            rulings.append(self._rule(words, trial))
        return rulings

    def _rule(self, words: str, trial: NormalTrial) -> Ruling:
        verdict = self._check(trial)
        if not verdict.legal:
            return Ruling(words, "illegal", verdict.violations[0].reason, valid=False)
        evaluation = self._evaluation(trial)
        if not evaluation.legal:
            return Ruling(words, "illegal", evaluation.reason or "impossible", valid=False)
        score = eligible(evaluation)
        if score is None:
            over = (evaluation.memory_per_gpu_gb or 0.0) - evaluation.cap_gb
            return Ruling(words, "does_not_fit", f"does not fit, {over:.1f} GB over", valid=True)
        return Ruling(words, "scored", f"{score:,.0f} tokens/s/GPU", True, score)

    def _check(self, trial: NormalTrial) -> Verdict:
        inputs = self._inputs
        return check(trial, inputs.workload, inputs.cluster, inputs.search)

    def _evaluation(self, trial: NormalTrial) -> Evaluation:
        """The score, or the memory verdict of what does not fit."""
        found = self._recorded.get(trial.trial_id) or self._known(trial)
        if found is None:
            found = self._from_the_oracle(trial)
            self._recorded[trial.trial_id] = found
        return found

    def _from_the_oracle(self, trial: NormalTrial) -> Evaluation:
        if self._evaluator is None:
            self._evaluator = self._inputs.evaluator()
        memory = self._evaluator.memory(trial)
        return self._evaluator.score(trial) if memory.legal and memory.fits else memory

    def _words(self, trial: NormalTrial) -> str:
        apart: Mapping[str, Any] = knobs_to_ask(trial, self._inputs.workload.baseline)
        return setting(apart, ",") or "the workload as it is"
