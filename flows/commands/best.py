"""`refold best`: the best known recipe, from the logs of all runs."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import typer

from flows.options import (
    ClusterFile,
    GemmBackend,
    Json,
    MemoryRegime,
    ModelPath,
    SearchMode,
    StoreOption,
    WorkloadFile,
    examples,
)

BEST_EXAMPLES = examples(
    "refold best workload.yaml cluster.yaml",
    "refold best workload.yaml cluster.yaml --store s3://bucket/refold --json",
    "refold best workload.yaml cluster.yaml --mode memory-real",
)
NOTHING_KNOWN = 1


def add_to(app: typer.Typer) -> None:
    """Registers the verb."""
    app.command("best", epilog=BEST_EXAMPLES)(best)


def best(
    workload: WorkloadFile,
    cluster: ClusterFile,
    mode: SearchMode = None,
    model_path: ModelPath = None,
    store: StoreOption = None,
    gemm_backend: GemmBackend = "auto",
    memory_regime: MemoryRegime = "config",
    as_json: Json = False,
) -> None:
    """Show the best known recipe of all runs, where it comes from, and how old it is.

    Nothing is evaluated. Known is what was scored under the same signature, mode and memory regime,
    and told what the cluster file's search allows. Exits 1 when nothing is: the nearest signatures
    are then listed, with what differs.
    """
    from flows.best_view import as_document, print_best, print_nothing
    from flows.nearest import nearest
    from flows.opening import store_of
    from flows.terminal import print_json, say
    from storage.recipes import KnownRecipes
    from storage.run_ids import now_utc
    from tasks.inputs import resolve_pair
    from tasks.recall import best_known, question_of

    inputs = resolve_pair(
        workload,
        cluster,
        tuple(model_path or ()),
        mode=mode or "full",
        gemm_backend=gemm_backend,
        memory_regime=memory_regime,
    )
    for warning in inputs.warnings:
        say(f"warning: {warning}")
    there, question = store_of(store), question_of(inputs)
    recipes = KnownRecipes(there, question)
    answer = best_known(recipes, inputs)
    for line in recipes.passed_over:
        say(f"warning: passed over: {line}")
    near = [] if answer.best else nearest(there, recipes.all_runs, inputs, question)
    option = f" --store {shlex.quote(store)}" if store else ""
    if as_json:
        print_json(as_document(question, answer, recipes, near, inputs))
    elif answer.best is not None:
        print_best(answer.best, answer, recipes, inputs, now_utc(), option)
    else:
        asked = _options(mode, gemm_backend, memory_regime, model_path or ())
        files = f"--workload {_quoted(workload)} --target-cluster {_quoted(cluster)}"
        print_nothing(answer, recipes, near, inputs, f"refold tune {files}{asked}{option}")
    if answer.best is None:
        raise typer.Exit(NOTHING_KNOWN)


def _options(
    mode: str | None, gemm_backend: str, memory_regime: str, model_path: Sequence[Path]
) -> str:
    """The options that ask `refold tune` for the same question."""
    said = [f" --mode {mode}"] if mode not in (None, "full") else []
    said += [f" --gemm-backend {gemm_backend}"] if gemm_backend != "auto" else []
    said += [f" --memory-regime {memory_regime}"] if memory_regime != "config" else []
    said += [f" --model-path {_quoted(folder)}" for folder in model_path]
    return "".join(said)


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
