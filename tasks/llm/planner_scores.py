"""How good a planner's answer was: regret after its first k proposals, and what they were worth."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tasks.inputs import Inputs
from tasks.llm.decisions import Decision
from tasks.llm.offline_verdicts import OfflineVerdicts, Outcome, Ruling
from tasks.llm.situation import notes_text, situation

DEFAULT_PROPOSALS = 5


@dataclass(frozen=True, slots=True)
class AnswerScore:
    """The first proposals of one answer, each with its ruling.

    Regrets are shares: 0.02 is two percent less tokens/s/GPU than the best known. Negative: more
    than was known before. None where nothing is known that fits.
    """

    rulings: tuple[Ruling, ...]
    incumbent: float | None
    """Tokens/s/GPU of the best trial before the answer; None: nothing fitted yet."""
    best_known: float | None
    """Tokens/s/GPU of the best trial of the signature in any run."""

    @property
    def best_proposal(self) -> float | None:
        """Tokens/s/GPU of the best new proposal that fits."""
        scores = [ruling.tokens_per_s_per_gpu for ruling in self.rulings]
        return max((score for score in scores if score is not None), default=None)

    @property
    def regret_before(self) -> float | None:
        """Of the search before the answer."""
        return self._regret(self.incumbent)

    @property
    def regret_after(self) -> float | None:
        """Of the search once the proposals are evaluated."""
        return self._regret(max(self.incumbent or 0.0, self.best_proposal or 0.0))

    @property
    def regret_of_proposals(self) -> float | None:
        """Of the new proposals alone: 1 where none fits."""
        return self._regret(self.best_proposal)

    def count(self, *outcomes: Outcome) -> int:
        """Proposals that ended in one of `outcomes`."""
        return sum(ruling.outcome in outcomes for ruling in self.rulings)

    @property
    def feedback(self) -> str:
        """What the oracle said of every proposal, a line each, and what it is measured against."""
        known = "nothing that fits" if self.best_known is None else f"{self.best_known:,.0f}"
        before = "nothing that fits" if self.incumbent is None else f"{self.incumbent:,.0f}"
        lines = [f"{ruling.words}: {ruling.reason}; best known {known}" for ruling in self.rulings]
        return "\n".join(
            [*(lines or ["no proposal that can be read"]), f"incumbent before: {before}"]
        )

    def _regret(self, reached: float | None) -> float | None:
        if not self.best_known:
            return None
        return 1.0 - (reached or 0.0) / self.best_known


@dataclass(frozen=True, slots=True)
class Case:
    """A decision to be taken again, and who rules on what is proposed."""

    decision: Decision
    verdicts: OfflineVerdicts
    best_known: float | None
    proposals: int
    """How many proposals of an answer count."""
    situation: str
    guidance: str
    scratchpad: str

    def score(self, sent: Sequence[Any]) -> AnswerScore:
        """The score of an answer's candidates, as they were sent."""
        state = self.decision.state
        return AnswerScore(
            rulings=tuple(self.verdicts.rule_on(sent[: self.proposals], state)),
            incumbent=state.best.score if state.best else None,
            best_known=self.best_known,
        )


def case_of(
    decision: Decision,
    inputs: Inputs,
    verdicts: OfflineVerdicts,
    best_known: float | None,
    proposals: int,
) -> Case:
    """The decision with what its planner was, or would be, shown."""
    return Case(
        decision=decision,
        verdicts=verdicts,
        best_known=best_known,
        proposals=proposals,
        situation=situation(decision.state, inputs.workload, inputs.cluster),
        guidance="\n".join(inputs.search.prompt_extras),
        scratchpad=notes_text(decision.state),
    )


def planner_metric(
    gold: Any,
    pred: Any,
    trace: Any = None,  # noqa: ARG001 - the form asks for it
    pred_name: Any = None,  # noqa: ARG001
    pred_trace: Any = None,  # noqa: ARG001
) -> Any:
    """The metric of a dspy optimizer (GEPA's form): `gold.case` is a `Case`, `pred.candidates` the
    answer. Score: the best new proposal over the best known, 0 where none fits; feedback in words.
    """
    import dspy

    candidates = getattr(pred, "candidates", None)
    scored = gold.case.score(candidates if isinstance(candidates, list) else [])
    regret = scored.regret_of_proposals
    reached = float(scored.best_proposal is not None) if regret is None else 1.0 - regret
    return dspy.Prediction(score=reached, feedback=scored.feedback)
