"""`refold fidelity`: how right projections of measured runs are."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.options import GemmBackend, Json, examples, place
from schemas.errors import UserError

if TYPE_CHECKING:
    from schemas.fidelity import Fidelity
    from schemas.measured import MeasuredRow
    from tasks.fidelity.tables import Table

EXAMPLES = examples(
    "refold fidelity",
    "refold fidelity --source megatron-a100 --source vtrain --plots plots",
    "refold fidelity --rows measured.jsonl --json",
)
WIDTH = 100


def add_to(app: typer.Typer) -> None:
    """Registers the verb."""
    app.command("fidelity", epilog=EXAMPLES)(fidelity)


def fidelity(
    source: Annotated[
        list[str] | None,
        typer.Option("--source", metavar="SOURCE", help="Only this table; repeatable."),
    ] = None,
    rows_file: Annotated[
        Path | None,
        typer.Option("--rows", metavar="FILE.jsonl", help="Rows of your own instead."),
    ] = None,
    plots: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", parser=place, help="Write a scatter plot per source as PNG there."
        ),
    ] = None,
    ranges: Annotated[
        bool, typer.Option("--ranges", help="Say how far what is assumed moves each row; slower.")
    ] = False,
    gemm_backend: GemmBackend = "auto",
    as_json: Json = False,
) -> None:
    """Compare projections with measured runs, per published table."""
    from tasks.calibrate.shipped import left_out_rates
    from tasks.fidelity.cases import left_out
    from tasks.fidelity.report import fidelity as report_of

    rows = _rows(source, rows_file)
    comparable = sum(left_out(row) is None for row in rows)
    with _progress(comparable) as on_row:
        report = report_of(
            rows,
            backend=gemm_backend,
            rates=left_out_rates,
            fitted="the shipped calibrations",
            ranges=ranges,
            on_row=on_row,
        )
    if plots is not None:
        _draw(report, plots)
    if as_json:
        from flows.terminal import print_json

        print_json(report.model_dump(mode="json"))
    else:
        _print(report)


def _rows(source: list[str] | None, rows_file: Path | None) -> "list[MeasuredRow]":
    """The rows that are asked for.

    Raises:
        UserError: a source is unknown, with the nearest, or the file holds no rows.
    """
    from difflib import get_close_matches

    from tasks.evidence import evidence, read_rows, sources

    rows = list(evidence() if rows_file is None else read_rows(rows_file))
    if not rows:
        raise UserError(f"{rows_file}: no rows")
    known = sources(rows)
    for name in source or ():
        if name not in known:
            near = get_close_matches(name, known, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]}? " if near else ""
            raise UserError(f"no source is called {name!r:.80}", hint=hint + ", ".join(known))
    return [row for row in rows if not source or row.source in source]


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """A bar on a terminal, silence elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from flows.terminal import console

    columns = (TextColumn("rows"), BarColumn(bar_width=40), MofNCompleteColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as display:
        bar = display.add_task("rows", total=total)
        yield lambda _: display.advance(bar)


def _draw(report: "Fidelity", folder: Path) -> None:
    from tasks.fidelity.draw import draw_scatter

    try:
        folder.mkdir(parents=True, exist_ok=True)
        for each in report.sources:
            own = [row for row in report.rows if row.source == each.source]
            name = "".join(c if c.isalnum() or c in "-_." else "-" for c in each.source)
            (folder / f"{name}.png").write_bytes(draw_scatter(each.source, own))
    except OSError as error:
        raise UserError(f"{error.filename or folder}: {error.strerror}") from error


def _print(report: "Fidelity") -> None:
    from textwrap import fill

    from tasks.fidelity import tables

    models = sorted({f"{gemm}: {', '.join(_of(report, gemm))}" for gemm in report.gemm.values()})
    print(fill(f"GEMM models: {'; '.join(models)}", WIDTH, subsequent_indent="  "))
    if report.fitted is None:
        print("under published rates: there is no fit to leave rows out of")
    else:
        print(fill(f"under published rates, and (') left out of {report.fitted}", WIDTH))
    _table(tables.accuracy_table(report))
    for make in (tables.ranking_table, tables.discordance_table, tables.target_table):
        _table(make(report))
    if len(report.sources) == 1:
        _table(tables.row_table(report, report.rows))
    _table(tables.exclusion_table(report))


def _of(report: "Fidelity", gemm: str) -> list[str]:
    return sorted(gpu for gpu, name in report.gemm.items() if name == gemm)


def _table(table: "Table") -> None:
    from flows.terminal import print_table

    if table.rows:
        print_table(table.columns, table.rows, title=table.title)
