"""`refold prompt-eval`: how good are a planner's prompt and model, judged on recorded runs?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.options import Json, StoreOption, examples, place
from schemas.errors import UserError

if TYPE_CHECKING:
    from tasks.llm.prompt_report import PromptReport

PROMPT_EVAL_EXAMPLES = examples(
    "refold prompt-eval latest",
    "refold prompt-eval latest --llm openai/gpt-4o --prompt planner.md -k 3",
    "refold prompt-eval latest --llm openai/gpt-4o --optimize better.md --metric-calls 60",
)


def add_to(app: typer.Typer) -> None:
    """Registers the verb."""
    app.command("prompt-eval", epilog=PROMPT_EVAL_EXAMPLES)(prompt_eval)


def prompt_eval(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...", help="Run ids, or beginnings of them.", show_default=False
        ),
    ],
    llm: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Ask this model.", show_default="score the record"),
    ] = None,
    prompt: Annotated[
        Path | None,
        typer.Option(
            parser=place,
            metavar="FILE",
            help="The planner's instructions, as text.",
            show_default="the shipped ones",
        ),
    ] = None,
    proposals: Annotated[
        int, typer.Option("-k", "--proposals", min=1, help="Proposals of an answer that count.")
    ] = 5,
    optimize: Annotated[
        Path | None,
        typer.Option(
            parser=place,
            metavar="FILE",
            help="Write a better prompt there, found by dspy's GEPA.",
            show_default=False,
        ),
    ] = None,
    metric_calls: Annotated[
        int, typer.Option(min=1, help="Answers that GEPA may have scored, about.")
    ] = 60,
    store: StoreOption = None,
    as_json: Json = False,
) -> None:
    """Score a planner's answers on recorded runs: regret, valid and duplicate proposals.

    Recorded answers are scored, and nobody is asked. With --llm that model is asked too, at every
    point at which a planner was, or at a run's end if none was. Nothing is added to a run.
    """
    from flows.prompt_evaluation import PromptEvalRequest, evaluate_prompts, optimize_prompt
    from flows.terminal import print_json, say

    request = PromptEvalRequest(
        runs=tuple(runs), store=store, llm=llm, prompt=prompt, proposals=proposals
    )
    if optimize is not None:
        if not optimize.resolve().parent.is_dir():
            raise UserError(f"--optimize {optimize}: its folder is not there")
        optimize.write_text(optimize_prompt(request, metric_calls), encoding="utf-8")
        say(f"the prompt is in {optimize}")
        request = request.model_copy(update={"prompt": optimize})
    report = evaluate_prompts(request)
    if as_json:
        print_json(report)
    else:
        _print(report)


def _print(report: "PromptReport") -> None:
    from flows.terminal import print_table

    print_table(
        ("answers", "prompt|", "model", "asked>", "proposals>", "valid>", "dup.>", "fit>"),
        [
            (
                score.answers,
                score.prompt,
                score.model,
                _asked(score.decisions, score.unreadable),
                score.proposals,
                _percent(score.valid_share),
                _percent(score.duplicate_share),
                _percent(score.fitting_share),
            )
            for score in report.prompts
        ],
        title=f"The first {report.proposals_per_answer} proposals of every answer",
    )
    regrets = [
        (
            run.run_id,
            run.answers,
            None if (best := run.best_known_tokens_per_s_per_gpu) is None else f"{best:,.0f}",
            _percent(run.mean_regret_before),
            _percent(run.mean_regret_after),
            _percent(run.mean_regret_of_proposals),
        )
        for run in report.runs
    ]
    means = [
        (
            "mean of the runs",
            score.answers,
            None,
            _percent(score.mean_regret_before),
            _percent(score.mean_regret_after),
            _percent(score.mean_regret_of_proposals),
        )
        for score in report.prompts
        if score.runs > 1
    ]
    print_table(
        ("run|", "answers", "best known>", "before>", "after>", "proposals alone>"),
        [*regrets, *means],
        title="Regret against the best known tokens/s/GPU of the signature",
    )


def _asked(decisions: int, unreadable: int) -> str:
    return f"{decisions} ({unreadable} unreadable)" if unreadable else str(decisions)


def _percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.1f} %"
