"""`refold replay`: what a run knew at some event, and whether it would decide the same again."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.commands.fork import AtEvent, AtRound, AtTrial
from flows.options import Json, RunId, StoreOption, examples
from schemas.errors import UserError

if TYPE_CHECKING:
    from flows.replaying import ReplayReport, Versions
    from storage import State

DIFFERENT = 1
WIDTH = 100

REPLAY_EXAMPLES = examples(
    "refold replay latest --at-round 1",
    "refold replay latest --at-event 40 --json",
    "refold replay latest --verify",
)


def add_to(app: typer.Typer) -> None:
    """Registers the verb."""
    app.command("replay", epilog=REPLAY_EXAMPLES)(replay)


def replay(
    run_id: RunId,
    at_round: AtRound = None,
    at_trial: AtTrial = None,
    at_event: AtEvent = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Make every decision again and compare.")
    ] = False,
    store: StoreOption = None,
    as_json: Json = False,
) -> None:
    """Show what a run knew at some event; or make all its decisions again and compare.

    --verify exits 1 when a decision differs, and names the first event that does.
    """
    from flows.artefacts import warn_if_unanchored
    from flows.opening import store_of
    from flows.terminal import print_json
    from storage import EventLog, fold_records
    from storage.cutting import Cut, cut_at

    place = store_of(store)
    run = place.find_run(run_id)
    warn_if_unanchored(place, run)
    cut = Cut(at_round, at_trial, at_event)
    if verify:
        if cut != Cut():
            raise UserError("--verify is of a whole run: leave --at-… out")
        from flows.replaying import verify_replay

        report = verify_replay(place, run)
        if as_json:
            print_json({**report.model_dump(mode="json"), "identical": report.identical})
        else:
            _print_report(report)
        if not report.identical:
            raise typer.Exit(DIFFERENT)
        return
    state = fold_records(cut_at(EventLog.open(place, run).iterate(), run, cut))
    if as_json:
        print_json(known_then(state))
    else:
        _print_state(run, state)


def known_then(state: "State") -> dict[str, Any]:
    """What `replay --json` prints."""
    from dataclasses import asdict

    best = state.best
    return {
        "run_id": state.run_id,
        "as_of_event": state.head_seq,
        "as_of": state.last_at,
        "head_hash": state.head_hash,
        "status": state.status,
        "signature": state.spec.signature,
        "search": state.spec.search,
        "best": best
        and {
            "trial": best.number,
            "trial_id": best.proposed.trial_id,
            "rule": best.proposed.rule,
            "tokens_per_s_per_gpu": best.score,
            "config": best.proposed.config,
        },
        "conservation": state.conservation._asdict(),
        "in_flight": list(state.in_flight),
        "spent": asdict(state.spent),
        "rounds": [
            {
                "round": known.number,
                "proposer": known.started.proposer,
                "trials": list(known.trials),
                "why_finished": known.finished and known.finished.why,
            }
            for known in state.rounds
        ],
        "axes": None if state.axes is None else state.axes.axes,
        "scratchpad": [
            {"text": note.text, "author": note.author, "at": note.at, "round": note.round}
            for note in state.notes
        ],
    }


def _print_state(run: str, state: "State") -> None:
    best = state.best
    print(f"run       {run} as of event {state.head_seq}, {state.last_at:%Y-%m-%d %H:%M:%S} UTC")
    if state.run_id != run:
        print(f"          an event it has from run {state.run_id}")
    print(f"workload  {state.spec.workload_name} on {state.spec.cluster_name} ({state.status})")
    if best is None:
        print("best      none yet")
    else:
        print(
            f"best      #{best.number} {best.proposed.tag} ({best.proposed.rule}):"
            f" {best.score:,.0f} tokens/s/GPU"
        )
    counts = state.conservation
    print(
        f"trials    {counts.candidates} proposed, {counts.evaluations} scored,"
        f" {counts.rejections} rejected, {counts.in_flight} in flight"
    )
    for line in _spent(state):
        print(f"budget    {line}")
    for known in state.rounds:
        end = known.finished.why if known.finished else "open"
        print(f"round {known.number:<3} {len(known.trials)} from {known.started.proposer}: {end}")
    for axis in state.axes.axes if state.axes else ():
        line = f"axis      {axis.name}: {' '.join(str(value) for value in axis.values)}"
        print(line if len(line) <= WIDTH else f"{line[: WIDTH - 2]} …")
    for note in state.notes:
        print(f"note      {note.author}: {note.text}")


def _spent(state: "State") -> list[str]:
    """What was spent of each budget that bounds something."""
    budget, spent = state.spec.search.budget, state.spent
    pairs = [
        ("seeds", spent.seeds, budget.seed_budget),
        ("performance calls", spent.perf_calls, budget.max_perf_calls),
        ("proposals after the seeds", spent.proposals, budget.max_proposals),
        ("rounds after the seeds", spent.rounds, budget.max_rounds),
        ("LLM tokens", spent.llm_tokens, budget.max_llm_tokens),
        ("LLM cost in USD", spent.llm_cost_usd, budget.max_llm_cost_usd),
        ("seconds", round(spent.wall_clock_s, 1), budget.max_wall_clock_s),
    ]
    return [f"{used} of {limit} {name}" for name, used, limit in pairs if limit]


def _print_report(report: "ReplayReport") -> None:
    different = report.different
    if different is None:
        counts = ", ".join(f"{count} {name}" for name, count in report.by_type.items())
        print(f"IDENTICAL: run {report.run_id}: {report.reproduced} decisions made again, the same")
        print(f"  {counts}")
        if report.recorded_inputs:
            print(
                f"  {report.recorded_inputs} events are recorded inputs and were taken as they are"
            )
        if not report.finished:
            print("  the run is not finished: compared as far as it goes")
        return
    trial = "" if different.trial is None else f", trial {different.trial}"
    print(f"DIFFERENT at event {different.seq} ({different.type}{trial}): {different.path}")
    print(f"  recorded {_shown(different.recorded)}")
    print(f"           under {_under(different.recorded_under)}")
    print(f"  now      {_shown(different.now)}")
    print(f"           under {_under(different.now_under)}")
    print(f"  the {report.reproduced} decisions before it were made again, the same")


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:79]}…"


def _under(versions: "Versions") -> str:
    known = {name: value for name, value in versions.stack.items() if value != "none"}
    known.pop("projection", None)
    stack = ", ".join(f"{name} {value}" for name, value in known.items())
    return f"refold {versions.refold}, projection {versions.projection}, {stack}"
