"""`refold schedule`: a pipeline schedule timed, compared and drawn."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from flows.options import (
    ClusterIfAny,
    GemmBackend,
    Json,
    ModelPath,
    Settings,
    WorkloadIfAny,
    examples,
)
from schemas.errors import UserError

if TYPE_CHECKING:
    from schemas.trial import Schedule
    from tasks.schedule_runs import AnyRun, ScheduleRun

EXAMPLES = examples(
    "refold schedule workload.yaml cluster.yaml --set pp=8 --draw pipeline.png",
    "refold schedule workload.yaml cluster.yaml --set mbs=1 --compare-all",
    "refold schedule --schedule v-half --pp 8 --microbatches 32 --f 10 --b 12 --w 8 --p2p 0.4",
    "refold schedule --pp 4 --microbatches 8 --f 1 --b 1 --w 1 --p2p 0 --compare-all --json",
)
NOT_POSSIBLE = 1
"""Exit code when the one schedule that was asked for may not run."""
USUAL_MS = (1.0, 1.0, 1.0, 0.0)
"""F, B, W and P2P of a pipeline without files, where not given."""
WIDTH = 100
MAX_PASSES = 200_000
"""Forward passes of one timeline: what a person waits for, not what memory holds."""


def add_to(app: typer.Typer) -> None:
    """Registers the verb."""
    app.command("schedule", epilog=EXAMPLES)(schedule)


def schedule(
    workload: WorkloadIfAny = None,
    cluster: ClusterIfAny = None,
    settings: Settings = None,
    name: Annotated[
        str | None,
        typer.Option("--schedule", metavar="NAME", help="A schedule, or one of its aliases."),
    ] = None,
    vpp: Annotated[
        int | None, typer.Option(min=1, help="Chunks per rank; default: the schedule's own.")
    ] = None,
    pp: Annotated[
        int | None, typer.Option(min=1, max=1024, help="Without files: pipeline ranks.")
    ] = None,
    microbatches: Annotated[
        int | None, typer.Option(min=1, help="Without files: microbatches per iteration.")
    ] = None,
    f: Annotated[
        float | None, typer.Option("--f", min=0, help="Forward of a whole stage, ms; default: 1.")
    ] = None,
    b: Annotated[
        float | None, typer.Option("--b", min=0, help="Input gradient, ms; default: 1.")
    ] = None,
    w: Annotated[
        float | None, typer.Option("--w", min=0, help="Weight gradient, ms; default: 1.")
    ] = None,
    p2p: Annotated[
        float | None, typer.Option(min=0, help="One transfer between ranks, ms; default: 0.")
    ] = None,
    compare_all: Annotated[
        bool, typer.Option("--compare-all", help="Run every schedule that may.")
    ] = False,
    draw: Annotated[
        Path | None,
        typer.Option(metavar="FILE.png|svg", help="Draw passes and memory over time."),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Write a trace for Perfetto, chrome://tracing."),
    ] = None,
    ascii_art: Annotated[
        bool, typer.Option("--ascii/--no-ascii", help="Draw one schedule on the terminal.")
    ] = True,
    model_path: ModelPath = None,
    gemm_backend: GemmBackend = "auto",
    as_json: Json = False,
) -> None:
    """Time a pipeline schedule, compare all of them, or draw one."""
    if compare_all and (name is not None or draw is not None or trace is not None):
        raise UserError(
            "--compare-all runs every schedule: it takes no --schedule, --draw, --trace"
        )
    chosen = None if name is None else schedule_name(name)
    if draw is not None and draw.suffix.lower() not in (".png", ".svg"):
        raise UserError(f"--draw {draw}: the picture is a .png or an .svg")
    if (workload is None) != (cluster is None):
        raise UserError("name a WORKLOAD and a CLUSTER, or neither")
    costs = (f, b, w, p2p)
    if workload is not None and cluster is not None:
        if pp is not None or microbatches is not None:
            raise UserError(
                "--pp and --microbatches are for plain durations; say --set pp=… or --set gbs=…"
            )
        if any(cost is not None for cost in costs):
            raise UserError("--f, --b, --w and --p2p are for a pipeline without files")
        files = (workload, cluster, tuple(model_path or ()), gemm_backend)
        runs = _from_files(files, settings or (), chosen, vpp, compare_all=compare_all)
    elif settings:
        raise UserError("--set changes a workload's knobs: it needs a WORKLOAD and a CLUSTER")
    else:
        size = (pp, microbatches)
        runs = _from_numbers(size, costs, chosen, vpp, compare_all=compare_all)
    if not compare_all:
        _refuse_impossible(runs[0], as_json=as_json)
        _write_files(runs[0], draw, trace)
    if as_json:
        _print_json(runs, single=not compare_all)
    else:
        _print(runs, with_chart=ascii_art and not compare_all)


def _from_files(
    files: tuple[Path, Path, tuple[Path, ...], str],
    settings: Sequence[str],
    chosen: "Schedule | None",
    vpp: int | None,
    *,
    compare_all: bool,
) -> "list[AnyRun]":
    """Schedules of a workload, with what the oracle says its passes take and keep."""
    from tasks.inputs import resolve_pair
    from tasks.schedule_runs import WorkloadSchedules
    from tasks.settings import asked_for

    workload, cluster, model_path, backend = files
    inputs = resolve_pair(workload, cluster, model_path, gemm_backend=backend)
    schedules = WorkloadSchedules(inputs, asked_for(settings, inputs.workload, inputs.cluster))
    if compare_all:
        return schedules.compare(all_schedules(), vpp)
    return [schedules.run(chosen, vpp)]


def _from_numbers(
    size: tuple[int | None, int | None],
    costs: tuple[float | None, float | None, float | None, float | None],
    chosen: "Schedule | None",
    vpp: int | None,
    *,
    compare_all: bool,
) -> "list[AnyRun]":
    """Schedules of equal stages."""
    from projection.schedules import EqualStages
    from tasks.schedule_runs import compare_plain, run_plain

    pp, microbatches = size
    if pp is None or microbatches is None:
        raise UserError("name a WORKLOAD and a CLUSTER, or a pipeline: --pp and --microbatches")
    passes = pp * microbatches * (vpp or 2)
    if passes > MAX_PASSES:
        raise UserError(
            f"{pp} ranks and {microbatches} microbatches are up to {passes:,} forward passes; a"
            f" timeline may hold {MAX_PASSES:,}"
        )
    given = [usual if ms is None else ms for ms, usual in zip(costs, USUAL_MS, strict=True)]
    pipeline = EqualStages(pp, microbatches, *given)
    if compare_all:
        return compare_plain(pipeline, all_schedules(), vpp)
    if chosen is None:
        raise UserError("say which schedule: --schedule NAME, or --compare-all")
    return [run_plain(pipeline, chosen, vpp)]


def all_schedules() -> "tuple[Schedule, ...]":
    """Every schedule there is."""
    from schemas.trial import Schedule

    return get_args(Schedule)


def schedule_name(text: str) -> "Schedule | None":
    """The schedule `text` names, aliases included; None for `auto`: what the framework would run.

    Raises:
        UserError: there is none; the message has the nearest.
    """
    from projection.legality.schedule_names import canonical_schedule

    return None if text.strip().lower() == "auto" else canonical_schedule(text)


def _refuse_impossible(run: "AnyRun", *, as_json: bool) -> None:
    from flows.terminal import print_json
    from tasks.schedule_runs import ImpossibleRun

    if isinstance(run, ImpossibleRun):
        if as_json:
            print_json(run.as_dict())
        else:
            _say(f"not possible: {run.schedule}, vpp {run.vpp}: {run.reason}")
        raise typer.Exit(NOT_POSSIBLE)


def _write_files(run: "AnyRun", draw: Path | None, trace: Path | None) -> None:
    from tasks.schedule_runs import ScheduleRun

    assert isinstance(run, ScheduleRun)
    if draw is not None:
        from tasks.draw_schedule import draw_schedule

        kind: Literal["png", "svg"] = "svg" if draw.suffix.lower() == ".svg" else "png"
        _write(draw, draw_schedule(run.picture(), kind))
    if trace is not None:
        from flows.terminal import json_line
        from projection.schedules.trace import chrome_trace

        content = json_line(chrome_trace(run.timeline, run.held(), run.unit))
        _write(trace, f"{content}\n".encode())


def _write(path: Path, content: bytes) -> None:
    """Raises UserError naming the path (the system does not, where the disk is full)."""
    try:
        path.write_bytes(content)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error


def _print_json(runs: "Sequence[AnyRun]", *, single: bool) -> None:
    from flows.terminal import print_json

    answers = [run.as_dict() for run in runs]
    print_json(answers[0] if single else answers)


def _print(runs: "Sequence[AnyRun]", *, with_chart: bool) -> None:
    from flows.terminal import print_table
    from tasks.schedule_runs import ScheduleRun

    ran = [run for run in runs if isinstance(run, ScheduleRun)]
    ran.sort(key=lambda run: run.timeline.makespan_ms)
    if ran:
        if ran[0].subject:
            print(ran[0].subject)
        peak = "peak per rank" + ("" if ran[0].memory is None else ", GB")
        print_table(
            ("schedule|", "vpp>", "makespan>", "bound>", "bubble>", peak),
            [_row(run) for run in ran],
            title=_title(ran[0]),
        )
    _print_notes(ran)
    for other in runs:
        if not isinstance(other, ScheduleRun):
            _say(f"not possible: {other.schedule}, vpp {other.vpp}: {other.reason}")
    if with_chart:
        from projection.schedules.ascii import gantt

        print(gantt(ran[0].timeline, WIDTH), end="")


def _row(run: "ScheduleRun") -> tuple[object, ...]:
    numbers: dict[str, Any] = run.as_dict()
    in_gb = numbers.get("memory_gb")
    if in_gb is None:
        peaks = [f"{peak:g}" for peak in numbers["peak_in_flight"]]
    else:
        peaks = [f"{peak:.0f}" for peak in in_gb]
    return (
        numbers["schedule"],
        numbers["vpp"],
        f"{numbers['makespan']:,.2f}",
        f"{numbers['lower_bound']:,.2f}",
        f"{numbers['bubble_ratio']:.1%}",
        " ".join(peaks),
    )


def _title(run: "ScheduleRun") -> str:
    schedule = run.timeline.schedule
    title = f"pp {schedule.pp}, {schedule.num_microbatches} microbatches; makespan and bound in ms"
    if run.evaluation is None:
        return f"{title}; peak in microbatches in flight"
    return f"{title}; cap {run.evaluation.cap_gb:.1f} GB"


def _print_notes(runs: "Sequence[ScheduleRun]") -> None:
    """How good a solved order is; and every warning once."""
    from projection.schedules import summary

    for run in runs:
        solver = summary(run.timeline).get("solver")
        if solver is not None:
            placed = solver["placement_gap"]
            proven = "" if placed is None else f", to the solver's own bound {placed:.1%}"
            _say(f"ilp: {solver['status']}; gap to the lower bound {solver['gap']:.1%}{proven}")
    for warning in dict.fromkeys(warning for run in runs for warning in run.warnings):
        _say(f"warning: {warning}")


def _say(line: str) -> None:
    """A line of any length, at most 100 columns wide."""
    from textwrap import fill

    print(fill(line, WIDTH, subsequent_indent="  "))
