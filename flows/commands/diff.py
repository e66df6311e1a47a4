"""`refold diff`: what two runs differ in."""

from typing import Annotated

import typer

from flows.options import Json, StoreOption, examples

DIFF_EXAMPLES = examples("refold diff 20261130t0732 latest", "refold diff zcfpzqks latest --json")


def add_to(app: typer.Typer) -> None:
    """Registers the verb."""
    app.command("diff", epilog=DIFF_EXAMPLES)(diff)


def diff(
    a: Annotated[str, typer.Argument(metavar="A", help="A run.", show_default=False)],
    b: Annotated[str, typer.Argument(metavar="B", help="Another.", show_default=False)],
    store: StoreOption = None,
    as_json: Json = False,
) -> None:
    """Compare two runs: what was asked, rounds, best trials, and where they part.

    Both are verified as they are read.
    """
    from flows.artefacts import warn_if_unanchored
    from flows.comparing import compare_runs
    from flows.comparison_view import print_comparison
    from flows.opening import store_of
    from flows.terminal import print_json

    there = store_of(store)
    runs = there.find_run(a), there.find_run(b)
    for run in dict.fromkeys(runs):
        warn_if_unanchored(there, run)
    found = compare_runs(there, *runs)
    if as_json:
        print_json(found)
    else:
        print_comparison(found)
