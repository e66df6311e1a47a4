"""Verbs about runs in the store: what there is, what happened, and is it intact."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.options import Json, RunId, StoreOption, examples, place

if TYPE_CHECKING:
    from storage import RunSummary, State
    from storage.state import ForkPoint, Round, Trial
    from storage.verify import Report

DAMAGED = 4

RUNS_EXAMPLES = examples("refold runs", "refold runs --store /data/refold --json")
SHOW_EXAMPLES = examples("refold show latest", "refold show latest --events --json")
EXPORT_EXAMPLES = examples("refold export latest", "refold export latest --out-dir /tmp/again")
VERIFY_EXAMPLES = examples("refold verify latest", "refold verify latest --json")


def add_to(app: typer.Typer) -> None:
    """Registers the verbs."""
    app.command("runs", epilog=RUNS_EXAMPLES)(runs)
    app.command("show", epilog=SHOW_EXAMPLES)(show)
    app.command("export", epilog=EXPORT_EXAMPLES)(export)
    app.command("verify", epilog=VERIFY_EXAMPLES)(verify)


def runs(store: StoreOption = None, as_json: Json = False) -> None:
    """List the runs of the store, oldest first.

    Reads summaries, not whole runs: a run is listed as it last said; `refold verify RUN` checks it.
    """
    from flows.opening import store_of
    from flows.terminal import print_json, print_table
    from storage import list_runs

    found = list_runs(store_of(store))
    if as_json:
        print_json(found)
        return
    print_table(
        ("run|", "status|", "workload on cluster", "scored>", "best tok/s/GPU>"),
        [
            (
                run.run_id,
                run.status,
                _subject(run),
                f"{run.scored}/{run.proposed}",
                _speed(run.best_tokens_per_s_per_gpu),
            )
            for run in found
        ],
    )
    for run in found:
        if run.problem:
            print(f"{run.run_id}: {run.problem}")


def _subject(run: "RunSummary") -> str:
    subject = f"{run.workload_name} on {run.cluster_name}"
    if run.parent is None:
        return subject
    return f"{subject}\nfork of …{run.parent.rpartition('-')[2]}, event {run.parent_seq}"


def show(
    run_id: RunId,
    store: StoreOption = None,
    events: Annotated[
        bool, typer.Option("--events", help="Every event, one per line, instead of the trials.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show what happened in a run: spec, trials, recipe."""
    from flows.artefacts import warn_if_unanchored
    from flows.opening import store_of
    from storage import EventLog

    place = store_of(store)
    run = place.find_run(run_id)
    warn_if_unanchored(place, run)
    log = EventLog.open(place, run)
    if events:
        _print_events(log, as_json=as_json)
        return
    state = log.state()
    if as_json:
        from flows.terminal import print_json

        print_json(state_as_dict(state))
    else:
        _print_state(state)


def export(
    run_id: RunId,
    store: StoreOption = None,
    out_dir: Annotated[
        Path | None,
        typer.Option(
            parser=place,
            metavar="DIR",
            help="Folder for artefacts.",
            show_default="where the run put them",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a run's artefacts again, byte-identical, from its log."""
    from flows.artefacts import export_run
    from flows.opening import store_of
    from flows.terminal import print_json

    place = store_of(store)
    written = export_run(place, place.find_run(run_id), out_dir)
    if as_json:
        print_json({"out_dir": str(written)})
    else:
        print(f"artefacts are in {written}")


def verify(run_id: RunId, store: StoreOption = None, as_json: Json = False) -> None:
    """Check that a run is intact: chain, columns, head, blobs.

    Exits 4 when anything is damaged.
    """
    from flows.opening import store_of
    from flows.terminal import print_json
    from storage import verify as verify_run

    place = store_of(store)
    report = verify_run(place, place.find_run(run_id))
    if as_json:
        print_json({**report.model_dump(mode="json"), "ok": report.ok})
    else:
        print_report(report)
    if not report.ok:
        raise typer.Exit(DAMAGED)


def print_report(report: "Report", what: str = "run") -> None:
    """The verdict first; only of a sound run is it said that all of it is intact."""
    if report.problem:
        print(f"DAMAGED: {report.problem}")
        print(f"{what} {report.run_id}: only its first {report.events} events were verified")
    else:
        print(
            f"{what} {report.run_id}: {report.events} events in {report.segments} segments and"
            f" {report.blobs} blobs are intact; head {report.head_hash}"
        )
    for warning in report.warnings:
        print(f"warning: {warning}")


def _print_events(log: Any, *, as_json: bool) -> None:
    from flows.terminal import json_line

    for envelope, event in log.iterate():
        if as_json:
            at = envelope.at.isoformat().replace("+00:00", "Z")
            print(json_line({**envelope._asdict(), "at": at, "payload": event}))
            continue
        trial = "" if envelope.trial is None else f" #{envelope.trial}"
        print(f"{envelope.seq:>5} {envelope.at:%H:%M:%S.%f} {envelope.type}{trial}")


def state_as_dict(state: "State") -> dict[str, Any]:
    """What `show --json` prints."""
    return {
        "run_id": state.run_id,
        "as_of_event": state.head_seq,
        "head_hash": state.head_hash,
        "status": state.status,
        "spec": state.spec,
        "incumbent": state.incumbent,
        "conservation": state.conservation._asdict(),
        "finished": state.finished,
        "recalled": state.recalled,
        "forks": [
            {"run_id": fork.run_id, "event": fork.seq, "forked": fork.event} for fork in state.forks
        ],
        "rounds": [
            {
                "round": round.number,
                "started": round.started,
                "trials": list(round.trials),
                "finished": round.finished,
            }
            for round in state.rounds
        ],
        "trials": [
            {
                "trial": trial.number,
                "round": trial.round,
                "status": trial.status,
                "proposed": trial.proposed,
                "rejected": trial.rejected,
                "scored": trial.scored,
                "invalidated": trial.invalidated,
            }
            for trial in state.trials.values()
        ],
    }


def _print_state(state: "State") -> None:
    from flows.terminal import print_table

    spec = state.spec
    print(f"run       {state.run_id} ({state.status}, {state.head_seq + 1} events)")
    print(f"workload  {spec.workload_name} on {spec.cluster_name}")
    print(f"signature {' '.join(f'{k} {v}' for k, v in spec.signature.model_dump().items())}")
    for line in spec.lesser_paths:
        print(f"note      {line}")
    for fork in state.forks:
        _print_fork(fork)
    if (known := state.recalled) is not None:
        print(
            f"recalled  trial {known.trial} of {known.run}, the best known then:"
            f" {known.tokens_per_s_per_gpu:,.0f} tokens/s/GPU"
        )
    for round in state.rounds:
        print(f"round     {_round(round)}")
    print_table(
        ("#>", "rule|", "configuration", "tokens/s/GPU>", "GB/GPU>", "verdict|"),
        [_trial_row(trial, state.incumbent) for trial in state.trials.values()],
    )
    for trial in state.trials.values():
        if trial.invalidated is not None:
            print(f"trial {trial.number} invalidated: {trial.invalidated.why}")
    if state.finished is not None:
        print(f"finished: {state.finished.why}")
        for line in state.finished.binding_constraints:
            print(f"  {line}")


def _print_fork(fork: "ForkPoint") -> None:
    from flows.terminal import wrapped

    event = fork.event
    print(f"fork      {fork.run_id} continues event {event.parent_seq} of {event.parent}")
    changed = "; ".join(event.changed) or "nothing"
    kept = "scores stand" if event.inherits else "candidates evaluated again"
    for line in wrapped(f"changed {changed}; {kept}", indent=10):
        print(line)


def _round(round: "Round") -> str:
    scope = f"{round.number} ({round.started.proposer}): {len(round.trials)} proposed"
    if round.finished is None:
        return f"{scope}, open"
    best = round.finished.incumbent
    return f"{scope}, {round.finished.why}; best {'none' if best is None else f'#{best}'}"


def _trial_row(trial: "Trial", incumbent: int | None) -> tuple[object, ...]:
    evaluation = trial.evaluation
    best = " ← best" if trial.number == incumbent else ""
    memory = evaluation.memory_per_gpu_gb if evaluation else None
    return (
        trial.number,
        trial.proposed.rule,
        trial.proposed.tag,
        _projected(trial),
        "-" if memory is None else f"{memory:,.1f}",
        trial.verdict + best,
    )


def _projected(trial: "Trial") -> str:
    """A scored trial's rate with its band."""
    if trial.scored is None:
        return "-"
    evaluation = trial.scored.evaluation
    beside = evaluation.expected_error.beside if evaluation.expected_error else ""
    return _speed(evaluation.tokens_per_s_per_gpu) + beside


def _speed(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
