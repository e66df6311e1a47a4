"""`refold invalidate`: a score that is found wrong can no longer win."""

from typing import TYPE_CHECKING, Annotated

import typer

from flows.options import Json, RunId, StoreOption, examples

if TYPE_CHECKING:
    from storage import State

INVALIDATE_EXAMPLES = examples(
    'refold invalidate latest 11 --why "measured with another job on the node"',
)


def add_to(app: typer.Typer) -> None:
    """Registers the verb."""
    app.command("invalidate", epilog=INVALIDATE_EXAMPLES)(invalidate)


def invalidate(
    run_id: RunId,
    trial: Annotated[
        int, typer.Argument(metavar="TRIAL", min=0, help="Its number.", show_default=False)
    ],
    why: Annotated[str, typer.Option(help="What is wrong with its score.", show_default=False)],
    store: StoreOption = None,
    as_json: Json = False,
) -> None:
    """Record that the score of a trial is wrong: it stays on record and can no longer win.

    A new event says so; nothing is rewritten. Says what is best now.
    """
    from flows.artefacts import warn_if_unanchored
    from flows.invalidating import invalidate as record
    from flows.opening import store_of
    from flows.terminal import print_json

    there = store_of(store)
    run = there.find_run(run_id)
    warn_if_unanchored(there, run)
    state = record(there, run, trial, why)
    if as_json:
        print_json(_as_dict(state, trial))
    else:
        _print(state, trial)


def _as_dict(state: "State", number: int) -> dict[str, object]:
    best = state.best
    return {
        "run_id": state.run_id,
        "trial": number,
        "trial_id": state.trials[number].proposed.trial_id,
        "as_of_event": state.head_seq,
        "head_hash": state.head_hash,
        "best_trial": None if best is None else best.number,
        "best_trial_id": None if best is None else best.proposed.trial_id,
        "best_tokens_per_s_per_gpu": None if best is None else best.score,
    }


def _print(state: "State", number: int) -> None:
    best = state.best
    print(f"run {state.run_id}: trial {number} is invalidated by event {state.head_seq}")
    if best is None:
        print("nothing that is legal and fits is left")
    else:
        print(f"best is trial {best.number} ({best.proposed.tag}): {best.score:,.0f} tokens/s/GPU")
    print(f"refold export {state.run_id} writes its artefacts anew")
