"""`refold calibrate`: fit a GPU's factors to measured runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.options import GemmBackend, Json, StoreOption, examples, place
from schemas.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from schemas.calibration import Calibration
    from tasks.calibrate.measured import Measured

EXAMPLES = examples(
    "refold calibrate --from rows.jsonl",
    "refold calibrate --from rows.jsonl --out-dir calibrations --start published --json",
    "refold calibrate --from latest",
)


def add_to(app: typer.Typer) -> None:
    """Registers the verb."""
    app.command("calibrate", epilog=EXAMPLES)(calibrate)


def calibrate(
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="ROWS.jsonl|RUN",
            help="Measured rows, one JSON object per line; or a run with measured trials.",
            show_default=False,
        ),
    ],
    out_dir: Annotated[
        Path | None,
        typer.Option(
            parser=place,
            metavar="DIR",
            help="Folder for the files, one per GPU.",
            show_default="the current folder",
        ),
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            metavar="shipped|published",
            help="What the fit starts from: the shipped calibration, or published rates alone.",
        ),
    ] = "shipped",
    gemm_backend: GemmBackend = "auto",
    store: StoreOption = None,
    as_json: Json = False,
) -> None:
    """Fit the factors between published and achieved rates to measured runs."""
    if start not in ("shipped", "published"):
        raise UserError(f"--start {start!r:.80}: expected shipped or published")
    measured = _measured(source, store, gemm_backend)
    found = _fit(measured, from_shipped=start == "shipped")
    written = _write(found, out_dir or Path())
    if as_json:
        from flows.terminal import print_json

        print_json(
            {
                "written": [str(path) for path in written],
                "calibrations": [each.model_dump(mode="json") for each in found],
                "left_out": dict(measured.refused),
            }
        )
        return
    for each, path in zip(found, written, strict=True):
        _print(each, path)
    _print_refused(measured)


def _measured(source: str, store: str | None, backend: GemmBackend) -> "Measured":
    """The measured runs `source` names: a file if there is one of that name, else a run."""
    from tasks.calibrate.measured import from_rows

    path = Path(source)
    if path.is_file() or path.suffix == ".jsonl":
        from tasks.evidence import read_rows

        measured = from_rows(read_rows(path), backend)
    else:
        measured = _of_run(source, store, backend)
    if not measured.observations:
        reasons = sorted(set(measured.refused.values()))
        raise UserError(
            f"{source}: nothing in it can be fitted"
            + (f" ({'; '.join(reasons)})" if reasons else ""),
            hint="docs/calibration.md says what a row states",
        )
    return measured


def _of_run(run: str, store: str | None, backend: GemmBackend) -> "Measured":
    from flows.opening import inputs_of_run, store_of
    from storage import EventLog
    from tasks.calibrate.measured import from_run

    shelf = store_of(store)
    run_id = shelf.find_run(run)
    inputs = inputs_of_run(shelf, run_id)
    trials = EventLog.open(shelf, run_id).state().trials.values()
    scored = {t.number: t.scored.evaluation for t in trials if t.scored is not None}
    measured = from_run(run_id, inputs.workload, inputs.cluster, scored, backend)
    if not measured.observations:
        raise UserError(
            f"run {run_id} has no measured trial: all {len(scored)} scores are projections",
            hint="calibrate from a table of measured rows (--from rows.jsonl)",
        )
    return measured


def _fit(measured: "Measured", *, from_shipped: bool) -> "list[Calibration]":
    from projection.calibration import shipped_calibration
    from projection.gemm import gemm_model
    from tasks.calibrate.build import calibrate as fitted

    found = []
    # GPUs over different GEMM models (AMD's over Origami) cannot share a factor.
    models = {gpu.name: gemm_model(gpu, measured.backend).name for gpu in measured.gpus}
    for gemm in sorted(set(models.values())):
        gpus = [gpu for gpu in measured.gpus if models[gpu.name] == gemm]
        names = {gpu.name for gpu in gpus}
        priors = {
            gpu.name: shipped
            for gpu in gpus
            if from_shipped and (shipped := shipped_calibration(gpu, gemm)) is not None
        }
        rows = [row for row in measured.observations if row.gpu in names]
        found += fitted(rows, gpus, gemm, measured.project, priors)
    return found


def _write(found: "Sequence[Calibration]", out_dir: Path) -> list[Path]:
    from tasks.calibrate.calibration_file import calibration_yaml

    written = []
    try:
        out_dir.mkdir(parents=True, exist_ok=True)
        for each in found:
            path = out_dir / f"{each.gpu}.{each.gemm}.yaml"
            path.write_text(calibration_yaml(each, "refold calibrate"), encoding="utf-8")
            written.append(path)
    except OSError as error:
        raise UserError(f"{error.filename or out_dir}: {error.strerror}") from error
    return written


def _print(calibration: "Calibration", path: Path) -> None:
    from flows.terminal import print_table

    c = calibration
    print(f"{c.gpu} over the GEMM model {c.gemm}: {path}")
    print_table(
        ("factor|", "value>", "before>", "one sigma>", "constrained by|", "unit"),
        [
            (
                name,
                f"{f.value:.3f}",
                f"{f.prior:.3f}",
                f"{f.low:.2f} … {f.high:.2f}" if f.origin != "prior" else "-",
                "no row: kept" if f.origin == "prior" else f"rows of this {f.origin}",
                f.unit,
            )
            for name, f in c.factors.items()
        ],
    )
    print_table(
        ("left-out group", "rows>", "error>", "worst>", "fitted>"),
        [
            (g.group, len(g.rows), f"{g.error:+.1%}", f"{g.worst:+.1%}", f"{g.fitted:+.1%}")
            for g in c.groups
        ],
    )
    for each in c.evidence:
        print(
            f"{each.level} {each.precision}: expected error {each.expected_error:.1%}, 8 of 10"
            f" within ± {each.band:.1%} ({each.rows} rows in {each.groups} groups, each left out)"
        )
    for note in c.notes:
        print(f"note: {note}")


def _print_refused(measured: "Measured") -> None:
    for row, reason in measured.refused.items():
        print(f"left out: {row}: {reason}")
