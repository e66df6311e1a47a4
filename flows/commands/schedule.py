"""`refold schedule`: a pipeline schedule timed, compared and drawn."""

from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from flows.options import Json, examples
from schemas.errors import ScheduleError, UserError

if TYPE_CHECKING:
    from projection.schedules import Timeline
    from schemas.trial import Schedule

EXAMPLES = examples(
    "refold schedule 1f1b --pp 4 --microbatches 8 --ascii",
    "refold schedule interleaved --pp 8 --vpp 2 --microbatches 32 --forward 10 --p2p 0.4",
    "refold schedule --compare-all --pp 4 --microbatches 8 --json",
)


def add_to(app: typer.Typer) -> None:
    """Registers the verb."""
    app.command("schedule", epilog=EXAMPLES)(schedule)


def schedule(
    pp: Annotated[int, typer.Option(min=1, help="Pipeline ranks.")],
    microbatches: Annotated[int, typer.Option(min=1, help="Microbatches per iteration.")],
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="A schedule, or one of its aliases.")
    ] = None,
    vpp: Annotated[
        int | None, typer.Option(min=1, help="Chunks per rank; default: the schedule's own.")
    ] = None,
    forward: Annotated[float, typer.Option(min=0, help="Forward of a whole stage, ms.")] = 1.0,
    input_grad: Annotated[float, typer.Option(min=0, help="Input gradient, ms.")] = 1.0,
    weight_grad: Annotated[float, typer.Option(min=0, help="Weight gradient, ms.")] = 1.0,
    p2p: Annotated[float, typer.Option(min=0, help="One transfer between ranks, ms.")] = 0.0,
    compare_all: Annotated[
        bool, typer.Option("--compare-all", help="Time every schedule these sizes allow.")
    ] = False,
    ascii_art: Annotated[bool, typer.Option("--ascii", help="Draw who runs what when.")] = False,
    as_json: Json = False,
) -> None:
    """Time a pipeline schedule, or compare all of them."""
    if compare_all == (name is not None):
        raise UserError("say which schedule: either a name or --compare-all")
    costs = (forward, input_grad, weight_grad, p2p)
    wanted = all_schedules() if compare_all else (schedule_name(name or ""),)
    timed: dict[str, Any] = {}
    for each in wanted:
        try:
            timed[each] = _time(each, pp, vpp or default_vpp(each), microbatches, costs)
        except ScheduleError as error:
            if not compare_all:
                raise
            timed[each] = str(error)
    if as_json:
        _print_json(timed, single=not compare_all)
    else:
        _print(timed, pp, microbatches)
        if ascii_art:
            _draw(timed)


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
    raise UserError(f"no schedule is called {text!r}{did_you_mean}", hint=", ".join(known))


def default_vpp(name: str) -> int:
    """Chunks per rank a schedule has when nobody says: two where one is impossible."""
    return 2 if name == "interleaved" or name.startswith("zbv") else 1


def _time(
    name: "Schedule", pp: int, vpp: int, microbatches: int, costs: tuple[float, float, float, float]
) -> "Timeline":
    from projection.schedules import Durations, build, simulate

    forward, input_grad, weight_grad, p2p = costs
    durations = Durations.uniform(pp, vpp, forward, input_grad, weight_grad)
    return simulate(build(name, pp, vpp, microbatches), durations, p2p)


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


def _print(timed: "dict[str, Timeline | str]", pp: int, microbatches: int) -> None:
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
        title=f"pp {pp}, {microbatches} microbatches; in flight: whole stages, busiest rank",
    )
    for line in impossible:
        print(f"not possible: {line}")


def _draw(timed: "dict[str, Timeline | str]") -> None:
    from flows.ascii_timeline import LEGEND, draw_timeline

    for name, timeline in timed.items():
        if isinstance(timeline, str):
            continue
        print(f"{name}   {LEGEND}")
        print("\n".join(draw_timeline(timeline.operations(), timeline.makespan_ms)))
