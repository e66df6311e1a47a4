"""`refold sensitivity`: is a recipe a sharp peak or on a plain."""

from typing import Annotated

import typer

from flows.options import Json, RunId, StoreOption, examples

SENSITIVITY_EXAMPLES = examples(
    "refold sensitivity latest",
    "refold sensitivity latest --trial 3 --json",
)


def add_to(app: typer.Typer) -> None:
    """Registers the verb."""
    app.command("sensitivity", epilog=SENSITIVITY_EXAMPLES)(sensitivity)


def sensitivity(
    run_id: RunId,
    trial: Annotated[
        int | None, typer.Option(min=0, help="Around this trial.", show_default="the best")
    ] = None,
    store: StoreOption = None,
    as_json: Json = False,
) -> None:
    """Move each axis of a recipe by one step: is it a sharp peak, or on a plain.

    Every step is projected anew, in the run's mode; the run is not written to. What is not legal
    alone takes with it what it must, by as little as there is.
    """
    from flows.artefacts import warn_if_unanchored
    from flows.opening import inputs_of_run, store_of
    from flows.sensitivity_view import as_document, print_sensitivity
    from flows.terminal import print_json, warn
    from storage import EventLog
    from tasks.chosen_trial import chosen_trial
    from tasks.sensitivity import steps_from

    there = store_of(store)
    run = there.find_run(run_id)
    warn_if_unanchored(there, run)
    state = EventLog.open(there, run).state()
    asked = chosen_trial(state, run, trial, verb="sensitivity")
    number = asked.number
    if asked.invalidated is not None:
        warn(f"trial {number} was found wrong: {asked.invalidated.why}")
    found = steps_from(inputs_of_run(there, run), asked.proposed.config)
    if asked.score is not None and asked.score != found.start.tokens_per_s_per_gpu:
        now = found.start.tokens_per_s_per_gpu or 0.0
        warn(
            f"trial {number} was scored {asked.score:,.0f} tokens/s/GPU and is projected {now:,.0f}"
            " now: by another Refold, or over other software"
        )
    if as_json:
        print_json({"run_id": run, "trial": number, **as_document(found)})
    else:
        print_sensitivity(found, f"trial {number} of run {run}")
