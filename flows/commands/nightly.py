"""`refold nightly`: what changed since last night, and is last night's recipe still the best?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.commands.tune import Prefect
from flows.options import (
    Json,
    ScoringAddress,
    ScoringEngine,
    StoreOption,
    Workers,
    examples,
    place,
)

if TYPE_CHECKING:
    from flows.nightly import Done
    from flows.requests import NightRequest

REGRESSION = 5
"""Exit code: a target lost more tokens/s/GPU than its threshold allows, or its score on record did
not come out though nothing changed."""
FAILED = 6
"""Exit code: a target could not be looked at, and none regressed."""

EXAMPLES = examples(
    "refold nightly targets.yaml",
    "refold nightly targets.yaml --slot now --json",
    "refold nightly targets.yaml --serve",
)


def add_to(app: typer.Typer) -> None:
    """Registers the verb."""
    app.command("nightly", epilog=EXAMPLES)(nightly)


def nightly(
    targets: Annotated[
        Path, typer.Argument(metavar="TARGETS", help="Targets YAML.", show_default=False)
    ],
    serve: Annotated[
        bool, typer.Option("--serve", help="Stay, and do each night when it is due.")
    ] = False,
    slot: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="The slot to do: a time, or now for one of its own.",
            show_default="the one that is due",
        ),
    ] = None,
    store: StoreOption = None,
    out_dir: Annotated[
        Path | None,
        typer.Option(
            parser=place,
            metavar="DIR",
            help="Folder for the report and the recipes.",
            show_default="nightly/<name of the targets>",
        ),
    ] = None,
    prefect: Prefect = None,
    scoring: ScoringEngine = None,
    workers: Workers = None,
    scoring_address: ScoringAddress = None,
    as_json: Json = False,
) -> None:
    """Tune again what changed; look at the recipe of what did not.

    Exits 5 when a target regressed or drifted, 6 when one failed.
    """
    from flows.commands.tune import refuse_names_that_are_not_text
    from flows.requests import NightRequest
    from schemas.errors import UserError
    from schemas.scoring import Scoring

    refuse_names_that_are_not_text(targets)
    if serve and slot is not None:
        raise UserError("--serve does each slot when it is due: leave --slot out")
    request = NightRequest(
        targets=targets,
        store=store,
        out_dir=out_dir,
        slot=slot,
        scoring=Scoring(engine=scoring, workers=workers, address=scoring_address),
    )
    if serve:
        _serve(request, prefect=prefect, as_json=as_json)
        return
    raise typer.Exit(_one(request, prefect=prefect, as_json=as_json))


def _one(request: "NightRequest", *, prefect: bool | None, as_json: bool) -> int:
    from flows.running import do_night

    done = do_night(request, prefect=prefect)
    _show(done, as_json=as_json)
    return exit_code(done)


def _serve(request: "NightRequest", *, prefect: bool | None, as_json: bool) -> None:
    from flows.running import do_night
    from flows.serving import serve

    def night() -> "Done":
        done = do_night(request, prefect=prefect)
        _show(done, as_json=as_json)
        return done

    serve(request.targets, night)


def exit_code(done: "Done") -> int:
    """0: nobody needs to look."""
    from tasks.nightly.report import findings

    found = findings(done.night)
    if any(finding.regressed or finding.drifted for finding in found):
        return REGRESSION
    return FAILED if any(finding.failed for finding in found) else 0


def _show(done: "Done", *, as_json: bool) -> None:
    from flows.night_view import print_night
    from flows.terminal import print_json
    from tasks.nightly.report import as_json as night_json

    if as_json:
        print_json({**night_json(done.night), "already_done": done.already})
    else:
        print_night(done)
