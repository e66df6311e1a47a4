"""`refold fork`: what would have become of a run, had something been different from here on."""

from pathlib import Path
from typing import Annotated

import typer

from flows.commands.tune import OutDir, Prefect, refuse_names_that_are_not_text
from flows.options import (
    Json,
    ModelPath,
    RunId,
    ScoringAddress,
    ScoringEngine,
    StoreOption,
    Workers,
    examples,
)

FORK_EXAMPLES = examples(
    "refold fork latest --at-round 1 --set search.budget.seed_budget=30",
    "refold fork latest --target-cluster new_cluster.yaml",
    "refold fork 20260102t0304 --at-trial 7 --set cluster.memory_safety_margin=0.05",
)

AtRound = Annotated[
    int | None,
    typer.Option(min=0, help="Keep what came before this round.", show_default=False),
]
AtTrial = Annotated[
    int | None,
    typer.Option(min=0, help="Keep all up to the verdict on this trial.", show_default=False),
]
AtEvent = Annotated[
    int | None, typer.Option(min=0, help="Keep all up to this event.", show_default=False)
]


def add_to(app: typer.Typer) -> None:
    """Registers the verb."""
    app.command("fork", epilog=FORK_EXAMPLES)(fork)


def fork(
    run_id: RunId,
    at_round: AtRound = None,
    at_trial: AtTrial = None,
    at_event: AtEvent = None,
    workload: Annotated[
        Path | None, typer.Option(help="Another Primus pretrain YAML.", show_default=False)
    ] = None,
    target_cluster: Annotated[
        Path | None,
        typer.Option(help="Another target-cluster YAML; brings its budgets.", show_default=False),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="Change search.… or cluster.… (search.budget.max_perf_calls=60); repeatable.",
            show_default=False,
        ),
    ] = None,
    seed_budget: Annotated[
        int | None, typer.Option(min=1, help="Seed candidates at most.", show_default="parent's")
    ] = None,
    llm: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Another language model.", show_default="parent's"),
    ] = None,
    out_dir: OutDir = None,
    model_path: ModelPath = None,
    store: StoreOption = None,
    scoring: ScoringEngine = None,
    workers: Workers = None,
    scoring_address: ScoringAddress = None,
    prefect: Prefect = None,
    as_json: Json = False,
) -> None:
    """Continue a run as a new one, from some event on, with something changed.

    The new run shares its parent's events by reference, and the parent may be running. What was
    scored stands unless the change makes it another question; then it is evaluated again.
    """
    from flows.requests import ForkRequest
    from flows.running import run_search
    from schemas.scoring import Scoring

    files = [path for path in (workload, target_cluster) if path is not None]
    refuse_names_that_are_not_text(*files, *(model_path or ()))
    request = ForkRequest(
        run=run_id,
        store=store,
        out_dir=out_dir,
        at_round=at_round,
        at_trial=at_trial,
        at_event=at_event,
        workload=workload,
        target_cluster=target_cluster,
        model_path=tuple(model_path or ()),
        settings=tuple(settings or ()),
        seed_budget=seed_budget,
        llm=llm,
        scoring=Scoring(engine=scoring, workers=workers, address=scoring_address),
    )
    run_search(request, prefect=prefect, as_json=as_json)
