"""`refold schedule`: a pipeline schedule timed, compared and drawn."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from flows.options import Json, ModelPath, Settings, examples
from schemas.errors import UserError, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from projection.schedules import Timeline
    from schemas.trial import Schedule

    TimeOne = Callable[[Schedule | None], Timeline]

EXAMPLES = examples(
    "refold schedule 1f1b --pp 4 --microbatches 8 --ascii",
    "refold schedule interleaved --pp 8 --vpp 2 --microbatches 32 --forward 10 --p2p 0.4",
    "refold schedule --compare-all --pp 4 --microbatches 8 --json",
    "refold schedule --compare-all --workload w.yaml --target-cluster c.yaml --set mbs=1",
)

MAX_PASSES = 200_000
"""Seconds of work; a pipeline of 64 ranks and 2,000 microbatches has 128,000."""


def add_to(app: typer.Typer) -> None:
    """Registers the verb."""
    app.command("schedule", epilog=EXAMPLES)(schedule)


def schedule(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A schedule, or one of its aliases.")
    ] = None,
    pp: Annotated[int | None, typer.Option(min=1, max=1024, help="Pipeline ranks.")] = None,
    microbatches: Annotated[
        int | None, typer.Option(min=1, help="Microbatches per iteration.")
    ] = None,
    vpp: Annotated[
        int | None, typer.Option(min=1, help="Chunks per rank; default: the schedule's own.")
    ] = None,
    forward: Annotated[float, typer.Option(min=0, help="Forward of a whole stage, ms.")] = 1.0,
    input_grad: Annotated[float, typer.Option(min=0, help="Input gradient, ms.")] = 1.0,
    weight_grad: Annotated[float, typer.Option(min=0, help="Weight gradient, ms.")] = 1.0,
    p2p: Annotated[float, typer.Option(min=0, help="One transfer between ranks, ms.")] = 0.0,
    workload: Annotated[
        Path | None, typer.Option(help="Take sizes and durations from this workload…")
    ] = None,
    target_cluster: Annotated[Path | None, typer.Option(help="…on this cluster.")] = None,
    settings: Settings = None,
    model_path: ModelPath = None,
    compare_all: Annotated[
        bool, typer.Option("--compare-all", help="Time every schedule these sizes allow.")
    ] = False,
    ascii_art: Annotated[bool, typer.Option("--ascii", help="Draw who runs what when.")] = False,
    as_json: Json = False,
) -> None:
    """Time a pipeline schedule, or compare all of them."""
    files = workload is not None or target_cluster is not None
    if compare_all and name is not None:
        raise UserError("--compare-all times every schedule: leave the name out")
    if not compare_all and name is None and not files:
        raise UserError("say which schedule: a name or --compare-all")
    wanted = all_schedules() if compare_all else (schedule_name(name) if name else None,)
    if files:
        time = _from_files(workload, target_cluster, settings or [], model_path or [], vpp)
    elif settings:
        raise UserError("--set changes a workload's knobs: it needs --workload")
    else:
        costs = (forward, input_grad, weight_grad, p2p)
        time = partial(_from_numbers, pp=pp, vpp=vpp, microbatches=microbatches, costs=costs)
    timed = _timed(wanted, time, may_fail=compare_all)
    if as_json:
        _print_json(timed, single=not compare_all)
    else:
        _print(timed)
        if ascii_art:
            _draw(timed)


def _timed(
    wanted: "Sequence[Schedule | None]", time: "TimeOne", *, may_fail: bool
) -> "dict[str, Timeline | str]":
    """Each schedule's timeline, or why it cannot be."""
    from schemas.errors import RefoldError

    timed: dict[str, Timeline | str] = {}
    for each in wanted:
        try:
            timeline = time(each)
        except RefoldError as error:
            if not may_fail:
                raise
            timed[each or ""] = str(error)
        else:
            timed[timeline.schedule.name] = timeline
    return timed


def _from_numbers(
    name: "Schedule | None",
    *,
    pp: int | None,
    vpp: int | None,
    microbatches: int | None,
    costs: tuple[float, float, float, float],
) -> "Timeline":
    from projection.schedules import Durations, build, simulate

    if name is None or pp is None or microbatches is None:
        raise UserError("--pp and --microbatches say how large the pipeline is")
    chunks = vpp or default_vpp(name)
    if pp * chunks * microbatches > MAX_PASSES:
        raise UserError(
            f"{pp} ranks × {chunks} chunks × {microbatches} microbatches are more than"
            f" {MAX_PASSES:,} forward passes, which is as many as one timeline may hold"
        )
    forward, input_grad, weight_grad, p2p = costs
    durations = Durations.uniform(pp, chunks, forward, input_grad, weight_grad)
    return simulate(build(name, pp, chunks, microbatches), durations, p2p)


def _from_files(
    workload: Path | None,
    target_cluster: Path | None,
    settings: list[str],
    model_path: list[Path],
    vpp: int | None,
) -> "TimeOne":
    """Times a schedule with what the oracle says each pass of the workload takes."""
    from projection.legality import normalise
    from tasks.inputs import resolve_pair
    from tasks.settings import parse_settings

    if workload is None or target_cluster is None:
        raise UserError("--workload and --target-cluster go together")
    inputs = resolve_pair(workload, target_cluster, model_path)
    oracle = inputs.oracle()
    asked = parse_settings(settings)

    def time(name: "Schedule | None") -> "Timeline":
        chosen = {} if name is None else {"pp_schedule": name, "vpp": vpp or default_vpp(name)}
        return oracle.timeline(normalise(asked.model_copy(update=chosen), inputs.workload))

    return time


def all_schedules() -> "tuple[Schedule, ...]":
    """Every schedule there is."""
    from schemas.trial import Schedule

    return get_args(Schedule)


def schedule_name(text: str) -> "Schedule":
    """The schedule `text` names, aliases included.

    Raises:
        UserError: there is none; the message has the nearest.
    """
    from difflib import get_close_matches

    from schemas.trial import SCHEDULE_ALIASES

    known = all_schedules()
    for each in known:
        if each == SCHEDULE_ALIASES.get(text, text):
            return each
    near = get_close_matches(text, [*known, *SCHEDULE_ALIASES], n=1)
    did_you_mean = f"; did you mean {near[0]}?" if near else ""
    raise UserError(f"no schedule is called {shown(text)}{did_you_mean}", hint=", ".join(known))


def default_vpp(name: str) -> int:
    """Chunks per rank a schedule has when nobody says: two where one is impossible."""
    return 2 if name == "interleaved" or name.startswith("zbv") else 1


def _print_json(timed: "dict[str, Timeline | str]", *, single: bool) -> None:
    from flows.terminal import print_json

    def plain(name: str, timeline: "Timeline | str") -> dict[str, Any]:
        if isinstance(timeline, str):
            return {"schedule": name, "impossible": timeline}
        return {
            "schedule": name,
            "vpp": timeline.schedule.vpp,
            "makespan_ms": timeline.makespan_ms,
            "bubble_ratio": timeline.bubble_ratio,
            "busy_ms": timeline.busy_ms,
            "peak_in_flight": timeline.peak_in_flight,
            "lower_bound_ms": timeline.lower_bound_ms,
        }

    answers = [plain(name, timeline) for name, timeline in timed.items()]
    print_json(answers[0] if single else answers)


def _print(timed: "dict[str, Timeline | str]") -> None:
    from flows.terminal import print_table

    def order(entry: "tuple[str, Timeline | str]") -> float:
        return float("inf") if isinstance(entry[1], str) else entry[1].makespan_ms

    rows: list[tuple[object, ...]] = []
    impossible = []
    for name, timeline in sorted(timed.items(), key=order):
        if isinstance(timeline, str):
            impossible.append(f"{name}: {timeline}")
            continue
        rows.append(
            (
                name,
                timeline.schedule.vpp,
                f"{timeline.makespan_ms:,.2f}",
                f"{timeline.bubble_ratio:.1%}",
                f"{max(timeline.peak_in_flight):g}",
                f"{timeline.lower_bound_ms:,.2f}",
            )
        )
    print_table(
        ("schedule", "vpp>", "makespan ms>", "bubble>", "in flight>", "lower bound ms>"),
        rows,
        title=_title(timed),
    )
    for line in impossible:
        print(f"not possible: {line}")


def _title(timed: "dict[str, Timeline | str]") -> str:
    for timeline in timed.values():
        if not isinstance(timeline, str):
            size = timeline.schedule
            pipeline = f"pp {size.pp}, {size.num_microbatches} microbatches"
            return f"{pipeline}; in flight: whole stages, busiest rank"
    return "no schedule is possible"


def _draw(timed: "dict[str, Timeline | str]") -> None:
    from flows.ascii_timeline import LEGEND, draw_timeline

    for name, timeline in timed.items():
        if isinstance(timeline, str):
            continue
        print(f"{name}   {LEGEND}")
        print("\n".join(draw_timeline(timeline.operations(), timeline.makespan_ms)))
