"""`refold`: one verb per question. This module only lists them; each verb imports what it needs."""

import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import typer

from flows.commands import (
    best,
    calibrate,
    collective,
    diff,
    fidelity,
    fork,
    inputs,
    invalidate,
    lineage,
    nightly,
    nights,
    placement,
    project,
    prompt_eval,
    replay,
    runs,
    schedule,
    sensitivity,
    server,
    signature,
    tune,
)
from flows.verbs import USAGE, Verbs

app = typer.Typer(
    cls=Verbs,
    name="refold",
    help=(
        "Finds the training recipe that gives the most tokens/s/GPU on a cluster, "
        "without running the job there."
    ),
    epilog=(
        "Exit codes: 0 done, 1 nothing legal, 2 the user's input, 3 the environment, 4 the log,"
        " 5 a regression, 6 a target failed, 70 a bug, 130 interrupted."
    ),
    context_settings={"max_content_width": 100},
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(asked: bool) -> None:
    if not asked:
        return
    try:
        print(version("refold"))
    except PackageNotFoundError:
        print("not installed")
    raise typer.Exit


@app.callback(invoke_without_command=True)
def refold(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Holds the options that stand before the verb; without a verb, shows the help."""
    if context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)
        raise typer.Exit(USAGE)


for register in (
    tune,
    fork,
    nightly,
    nights,
    inputs,
    signature,
    project,
    runs,
    best,
    replay,
    lineage,
    sensitivity,
    diff,
    invalidate,
    prompt_eval,
    placement,
    collective,
    schedule,
    fidelity,
    calibrate,
    server,
):
    register.add_to(app)


def main() -> None:
    """The console command. Exits the process."""
    app()
