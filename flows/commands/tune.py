"""`refold tune` and `refold resume`: the main job."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from flows.options import (
    GemmBackend,
    Json,
    MemoryRegime,
    ModelPath,
    RunId,
    ScoringAddress,
    ScoringEngine,
    SearchMode,
    StoreOption,
    Workers,
    examples,
    place,
)
from schemas.errors import EnvironmentMissing, UserError

TUNE_EXAMPLES = examples(
    "refold tune --workload workload.yaml --target-cluster cluster.yaml --seed-only",
    "refold tune --workload w.yaml --target-cluster c.yaml --out-dir out --seed-budget 30",
    "refold tune --workload w.yaml --target-cluster c.yaml --dry-run --seed-only",
    "refold tune --workload w.yaml --target-cluster c.yaml --resume",
)
RESUME_EXAMPLES = examples("refold resume latest", "refold resume 20260102t0304 --json")

Prefect = Annotated[
    bool | None,
    typer.Option(
        "--prefect/--no-prefect",
        help="Run as a Prefect flow, with a temporary server if there is none; or in process.",
        show_default="as a flow when an API is reachable",
    ),
]
OutDir = Annotated[
    Path | None,
    typer.Option(
        parser=place,
        metavar="DIR",
        help="Folder for artefacts.",
        show_default="tuning_runs/<cluster name>",
    ),
]


def add_to(app: typer.Typer) -> None:
    """Registers the verbs."""
    app.command("tune", epilog=TUNE_EXAMPLES)(tune)
    app.command("resume", epilog=RESUME_EXAMPLES)(resume)


def tune(
    workload: Annotated[Path, typer.Option(help="Primus pretrain YAML.", show_default=False)],
    target_cluster: Annotated[Path, typer.Option(help="Target-cluster YAML.", show_default=False)],
    out_dir: OutDir = None,
    mode: SearchMode = None,
    profiling_mode: Annotated[
        Literal["simulate", "benchmark", "both"],
        typer.Option(help="simulate: no GPU. benchmark and both are not in this version."),
    ] = "simulate",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Short for --mode dry.")] = False,
    seed_only: Annotated[
        bool, typer.Option("--seed-only", "--no-agent", help="Only the seed plan; no LLM.")
    ] = False,
    agent_only: Annotated[
        bool,
        typer.Option("--agent-only", help="No seeds: a model goes on with a run that has them."),
    ] = False,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the newest unfinished run of this spec.")
    ] = False,
    no_recall: Annotated[
        bool, typer.Option("--no-recall", help="Don't begin with the best known recipe.")
    ] = False,
    seed_budget: Annotated[
        int | None, typer.Option(min=1, help="Seed candidates at most.", show_default="12")
    ] = None,
    search: Annotated[
        Literal["llm", "exhaustive", "tpe", "random"] | None,
        typer.Option(help="Who proposes after the seeds.", show_default="nobody"),
    ] = None,
    llm: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Language model.", show_default="LLM_MODEL"),
    ] = None,
    model_path: ModelPath = None,
    store: StoreOption = None,
    scoring: ScoringEngine = None,
    workers: Workers = None,
    scoring_address: ScoringAddress = None,
    prefect: Prefect = None,
    gemm_backend: GemmBackend = "auto",
    memory_regime: MemoryRegime = "config",
    as_json: Json = False,
) -> None:
    """Search for a workload's recipe on a cluster: the main job."""
    from flows.requests import TuneRequest
    from flows.running import run_search
    from schemas.scoring import Scoring

    if seed_only and llm is not None:
        raise UserError("--seed-only and --llm contradict each other: leave one out")
    if dry_run and mode not in ("dry", None):
        raise UserError(f"--dry-run is short for --mode dry, and --mode {mode} was asked for too")
    others = {
        "--seed-only": seed_only,
        "--resume": resume,
        "--seed-budget": seed_budget is not None,
    }
    if agent_only and any(others.values()):
        other = next(name for name, said in others.items() if said)
        raise UserError(f"--agent-only and {other} contradict each other: leave one out")
    _refuse_what_is_not_there(profiling_mode, search)
    refuse_names_that_are_not_text(workload, target_cluster, *(model_path or ()))
    request = TuneRequest(
        workload=workload,
        target_cluster=target_cluster,
        out_dir=out_dir,
        store=store,
        model_path=tuple(model_path or ()),
        mode="dry" if dry_run else mode or "full",
        gemm_backend=gemm_backend,
        memory_regime=memory_regime,
        seed_budget=seed_budget,
        seed_only=seed_only,
        agent_only=agent_only,
        llm=llm,
        recall=not no_recall,
        resume=resume,
        scoring=Scoring(engine=scoring, workers=workers, address=scoring_address),
    )
    run_search(request, prefect=prefect, as_json=as_json)


def resume(
    run_id: RunId,
    store: StoreOption = None,
    out_dir: OutDir = None,
    llm: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Go on with this language model.", show_default="as before"
        ),
    ] = None,
    scoring: ScoringEngine = None,
    workers: Workers = None,
    scoring_address: ScoringAddress = None,
    prefect: Prefect = None,
    as_json: Json = False,
) -> None:
    """Take up a run where its log ends; with --llm also one that has ended."""
    from flows.requests import ResumeRequest
    from flows.running import run_search
    from schemas.scoring import Scoring

    request = ResumeRequest(
        run=run_id,
        store=store,
        out_dir=out_dir,
        llm=llm,
        scoring=Scoring(engine=scoring, workers=workers, address=scoring_address),
    )
    run_search(request, prefect=prefect, as_json=as_json)


def refuse_names_that_are_not_text(*paths: Path) -> None:
    """A run records the names of its inputs, in UTF-8; other bytes it could not write down."""
    for path in paths:
        try:
            str(path).encode()
        except UnicodeEncodeError as error:
            raise UserError(
                f"{str(path)!r} is not text in this locale's encoding, and a run records it",
                hint="rename it, or set LC_ALL to a UTF-8 locale",
            ) from error


def _refuse_what_is_not_there(profiling_mode: str, search: str | None) -> None:
    """Raises EnvironmentMissing for what was asked for by name and this version does not have."""
    seeds = "--seed-only runs the deterministic seed plan"
    if profiling_mode != "simulate":
        raise EnvironmentMissing(
            f"--profiling-mode {profiling_mode} is not in this version: it projects, nothing is"
            " measured",
            hint="leave it out, or say --profiling-mode simulate",
        )
    if search not in (None, "llm"):
        raise EnvironmentMissing(
            f"--search {search} is not in this version: only the seed plan proposes", hint=seeds
        )
