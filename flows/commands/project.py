"""`refold project`: one evaluation, or one per line of a file, without a search."""

import sys
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.options import (
    ClusterIfAny,
    GemmBackend,
    Json,
    MemoryRegime,
    ModelPath,
    Settings,
    WorkloadIfAny,
    examples,
)
from schemas.errors import UserError

if TYPE_CHECKING:
    from projection.memory.explain import MemoryExplanation
    from schemas.evaluation import Evaluation

EXAMPLES = examples(
    "refold project workload.yaml cluster.yaml",
    "refold project workload.yaml cluster.yaml --set pp=4 --set fp8=hybrid --json",
    "refold project workload.yaml cluster.yaml --explain",
    "refold project workload.yaml cluster.yaml --equation activations",
    "refold project --batch questions.jsonl > answers.jsonl",
    """echo '{"workload": "w.yaml", "cluster": "c.yaml", "set": {"pp": 4}}' | """
    "refold project --batch -",
)
ILLEGAL = 1
BAD_LINES = 2


def add_to(app: typer.Typer) -> None:
    """Registers the verb."""
    app.command("project", epilog=EXAMPLES)(project)


def project(
    workload: WorkloadIfAny = None,
    cluster: ClusterIfAny = None,
    settings: Settings = None,
    batch: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl",
            help=(
                'One question per line ({"workload": …, "cluster": …, "set": {…}}; "-": stdin), '
                "one JSON answer per line in the same order."
            ),
        ),
    ] = None,
    model_path: ModelPath = None,
    gemm_backend: GemmBackend = "auto",
    memory_regime: MemoryRegime = "config",
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Take the memory apart: per rank, per component."),
    ] = False,
    equation: Annotated[
        str | None,
        typer.Option(
            "--equation",
            metavar="COMPONENT",
            help="The equation and the numbers behind one component of --explain.",
            show_default=False,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Project memory and time of one configuration, or of many."""
    from tasks.projections import Projector

    projector = Projector(
        model_path=tuple(model_path or ()), gemm_backend=gemm_backend, memory_regime=memory_regime
    )
    if batch is not None:
        if settings:
            raise UserError("--set is for one configuration; in a batch each line has its own")
        if explain or equation is not None:
            raise UserError("--explain and --equation are for one configuration, not for a batch")
        defaults = {"workload": workload, "cluster": cluster}
        _batch(projector, batch, {k: str(v) for k, v in defaults.items() if v is not None})
        return
    if workload is None or cluster is None:
        raise UserError("name a WORKLOAD and a CLUSTER, or --batch FILE.jsonl")
    from tasks.settings import parse_settings

    asked = parse_settings(settings or ())
    evaluation = projector.project(workload, cluster, asked)
    explained = None
    if evaluation.legal:
        evaluation = projector.with_imbalance_limit(workload, cluster, evaluation)
        if explain or equation is not None:
            explained = projector.explain(workload, cluster, asked)
    _print(evaluation, explained, equation, as_json=as_json)
    if not evaluation.legal:
        raise typer.Exit(ILLEGAL)


def _batch(projector: object, batch: Path, defaults: dict[str, str]) -> None:
    from tasks.projections import Projector, answer_lines

    assert isinstance(projector, Projector)
    bad = 0
    for answer in answer_lines(projector, _lines(batch), defaults):
        bad += answer.failed
        sys.stdout.write(answer.text + "\n")
        if str(batch) == "-":
            sys.stdout.flush()  # somebody may be waiting for it before asking the next
    sys.stdout.flush()
    if bad:
        from flows.verbs import report

        report(f"{bad} of the lines could not be answered; each says why under error", None)
        raise typer.Exit(BAD_LINES)


def _lines(batch: Path) -> Iterator[str]:
    """The lines as text; bytes that are not UTF-8 are surrogates, and refused with their line."""
    if str(batch) == "-":
        if sys.stdin is None:
            raise UserError("--batch -: standard input is closed")
        if isinstance(sys.stdin, TextIOWrapper):
            sys.stdin.reconfigure(encoding="utf-8", errors="surrogateescape")
        yield from sys.stdin
        return
    try:
        with batch.open(encoding="utf-8", errors="surrogateescape") as file:
            yield from file
    except OSError as error:
        raise UserError(f"{batch}: {error.strerror}") from error


def _print(
    evaluation: "Evaluation",
    explained: "MemoryExplanation | None",
    equation: str | None,
    *,
    as_json: bool,
) -> None:
    if explained is None:
        _print_evaluation(evaluation, as_json=as_json)
        return
    from flows.memory_view import as_document, print_component, print_explanation
    from flows.terminal import print_json

    if as_json:
        document = {"evaluation": evaluation.model_dump(mode="json")}
        print_json({**document, "memory": as_document(explained, equation)})
    elif equation is not None:
        print_component(explained, equation)
    else:
        _print_evaluation(evaluation, as_json=False)
        print_explanation(explained)


def _print_evaluation(evaluation: "Evaluation", *, as_json: bool) -> None:
    from flows.evaluation_view import print_evaluation
    from flows.terminal import print_json

    if as_json:
        print_json(evaluation)
    else:
        print_evaluation(evaluation)
