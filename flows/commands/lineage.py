"""`refold lineage`: why this recipe."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.options import Json, RunId, StoreOption, examples, place

if TYPE_CHECKING:
    from schemas.lineage import Lineage
    from storage import Store

LINEAGE_EXAMPLES = examples(
    "refold lineage latest",
    "refold lineage latest --trial 3 --as-of 40 --json",
    "refold lineage latest --svg why.svg --dot why.dot",
    "refold lineage latest --bundle evidence && refold verify latest --store evidence",
)


def add_to(app: typer.Typer) -> None:
    """Registers the verb."""
    app.command("lineage", epilog=LINEAGE_EXAMPLES)(lineage)


def lineage(
    run_id: RunId,
    trial: Annotated[
        int | None, typer.Option(min=0, help="Of this trial.", show_default="the best")
    ] = None,
    as_of: Annotated[
        int | None,
        typer.Option(min=0, metavar="EVENT", help="As known then.", show_default="the last"),
    ] = None,
    dot: Annotated[
        Path | None,
        typer.Option(parser=place, metavar="FILE", help="Graphviz file.", show_default=False),
    ] = None,
    svg: Annotated[
        Path | None,
        typer.Option(parser=place, metavar="FILE", help="Drawn graph.", show_default=False),
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option(
            parser=place,
            metavar="DIR",
            help="Copy the runs it needs into a store of their own: DIR, new or empty.",
            show_default=False,
        ),
    ] = None,
    store: StoreOption = None,
    as_json: Json = False,
) -> None:
    """Show where a recipe comes from: files, signature, who proposed it, what it beat.

    Every event and blob that is read is verified.
    """
    from flows.artefacts import warn_if_unanchored
    from flows.lineage_view import print_lineage
    from flows.opening import store_of
    from flows.terminal import print_json
    from tasks.lineage import lineage_of_trial

    there = store_of(store)
    run = there.find_run(run_id)
    warn_if_unanchored(there, run)
    found = lineage_of_trial(there, run, trial=trial, as_of=as_of)
    _draw(found, dot, svg)
    if bundle is not None:
        _bundle(there, run, bundle)
    if as_json:
        print_json(found)
    else:
        print_lineage(found)


def _draw(found: "Lineage", dot: Path | None, svg: Path | None) -> None:
    from flows.terminal import say
    from storage.exports.files import write_file
    from tasks.lineage.draw import svg_of
    from tasks.lineage.graph import dot_of, graph_of

    for path, draw in ((dot, dot_of), (svg, svg_of)):
        if path is not None:
            write_file(path, draw(graph_of(found)))
            say(f"the graph is in {path}")


def _bundle(there: "Store", run: str, folder: Path) -> None:
    from flows.terminal import say
    from storage.bundle import write_bundle

    runs = write_bundle(there, run, folder)
    say(f"the store {folder} holds {', '.join(runs)}")
