"""Scores of planner answers, put together per run, and per prompt and model."""

from collections.abc import Iterable, Sequence
from typing import Literal

from schemas.model import FrozenModel
from tasks.llm.planner_scores import AnswerScore, Case

Answers = Literal["recorded", "asked"]


class DecisionScore(FrozenModel):
    """One answer of a planner. Regrets are shares of the best known tokens/s/GPU."""

    run_id: str
    event: int
    """The last event the planner knew of."""
    answers: Answers
    prompt: str
    """Hash of the prompt text."""
    model: str
    readable: bool
    proposals: int
    valid: int
    """Well-formed and legal."""
    duplicates: int
    fitting: int
    """New, and they fit."""
    regret_before: float | None
    regret_after: float | None
    regret_of_proposals: float | None
    best_known_tokens_per_s_per_gpu: float | None
    feedback: tuple[str, ...]


class RunScore(FrozenModel):
    """The answers of one prompt and model in one run, regrets averaged over its decisions."""

    run_id: str
    answers: Answers
    prompt: str
    model: str
    decisions: int
    best_known_tokens_per_s_per_gpu: float | None
    mean_regret_before: float | None
    mean_regret_after: float | None
    mean_regret_of_proposals: float | None


class PromptScore(FrozenModel):
    """The answers of one prompt and model. Regrets are averaged over runs, each weighing the same;
    shares are of all proposals."""

    answers: Answers
    prompt: str
    model: str
    runs: int
    decisions: int
    unreadable: int
    proposals: int
    valid_share: float | None
    duplicate_share: float | None
    fitting_share: float | None
    mean_regret_before: float | None
    mean_regret_after: float | None
    mean_regret_of_proposals: float | None


class PromptReport(FrozenModel):
    """The outcome of scoring prompts on recorded runs."""

    proposals_per_answer: int
    """How many proposals of an answer count, the first ones."""
    prompts: tuple[PromptScore, ...]
    runs: tuple[RunScore, ...]
    decisions: tuple[DecisionScore, ...]


def decision_score(
    case: Case, scored: AnswerScore, *, answers: Answers, prompt: str, model: str, readable: bool
) -> DecisionScore:
    """`scored` as a line of the report."""
    return DecisionScore(
        run_id=case.decision.run_id,
        event=case.decision.state.head_seq,
        answers=answers,
        prompt=prompt,
        model=model,
        readable=readable,
        proposals=len(scored.rulings),
        valid=sum(ruling.valid for ruling in scored.rulings),
        duplicates=scored.count("duplicate"),
        fitting=scored.count("scored"),
        regret_before=scored.regret_before,
        regret_after=scored.regret_after,
        regret_of_proposals=scored.regret_of_proposals,
        best_known_tokens_per_s_per_gpu=scored.best_known,
        feedback=tuple(scored.feedback.splitlines()),
    )


def report_of(decisions: Sequence[DecisionScore], proposals_per_answer: int) -> PromptReport:
    """The report, in the order in which prompts and runs first occur."""
    runs = [_run_score(group) for group in _grouped(decisions, by_run=True)]
    return PromptReport(
        proposals_per_answer=proposals_per_answer,
        prompts=tuple(
            _prompt_score(group, [run for run in runs if _same(run, group[0])])
            for group in _grouped(decisions, by_run=False)
        ),
        runs=tuple(runs),
        decisions=tuple(decisions),
    )


def _grouped(decisions: Sequence[DecisionScore], *, by_run: bool) -> list[list[DecisionScore]]:
    groups: dict[tuple[str, ...], list[DecisionScore]] = {}
    for score in decisions:
        key = (score.answers, score.prompt, score.model, score.run_id if by_run else "")
        groups.setdefault(key, []).append(score)
    return list(groups.values())


def _same(run: RunScore, score: DecisionScore) -> bool:
    return (run.answers, run.prompt, run.model) == (score.answers, score.prompt, score.model)


def _run_score(group: Sequence[DecisionScore]) -> RunScore:
    first = group[0]
    return RunScore(
        run_id=first.run_id,
        answers=first.answers,
        prompt=first.prompt,
        model=first.model,
        decisions=len(group),
        best_known_tokens_per_s_per_gpu=first.best_known_tokens_per_s_per_gpu,
        mean_regret_before=_mean(score.regret_before for score in group),
        mean_regret_after=_mean(score.regret_after for score in group),
        mean_regret_of_proposals=_mean(score.regret_of_proposals for score in group),
    )


def _prompt_score(group: Sequence[DecisionScore], runs: Sequence[RunScore]) -> PromptScore:
    first = group[0]
    proposals = sum(score.proposals for score in group)

    def share(count: int) -> float | None:
        return count / proposals if proposals else None

    return PromptScore(
        answers=first.answers,
        prompt=first.prompt,
        model=first.model,
        runs=len(runs),
        decisions=len(group),
        unreadable=sum(not score.readable for score in group),
        proposals=proposals,
        valid_share=share(sum(score.valid for score in group)),
        duplicate_share=share(sum(score.duplicates for score in group)),
        fitting_share=share(sum(score.fitting for score in group)),
        mean_regret_before=_mean(run.mean_regret_before for run in runs),
        mean_regret_after=_mean(run.mean_regret_after for run in runs),
        mean_regret_of_proposals=_mean(run.mean_regret_of_proposals for run in runs),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
