"""`refold nights`: the nights there were, one night's report again, and is it intact."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.options import Json, StoreOption, examples, place

if TYPE_CHECKING:
    from storage import Store
    from storage.nights import Night

DAMAGED = 4

EXAMPLES = examples(
    "refold nights",
    "refold nights latest",
    "refold nights 20260102t0200 --verify",
    "refold nights latest --out-dir /tmp/report --json",
)


def add_to(app: typer.Typer) -> None:
    """Registers the verb."""
    app.command("nights", epilog=EXAMPLES)(nights)


def nights(
    night: Annotated[
        str | None,
        typer.Argument(
            metavar="[NIGHT]",
            help="A night's name, or an unambiguous beginning of one, or latest.",
            show_default="list them",
        ),
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Check that the night is intact.")] = (
        False
    ),
    out_dir: Annotated[
        Path | None,
        typer.Option(
            parser=place, metavar="DIR", help="Write the report there.", show_default=False
        ),
    ] = None,
    last: Annotated[int, typer.Option(min=1, help="How many nights to list.")] = 20,
    store: StoreOption = None,
    as_json: Json = False,
) -> None:
    """List the nights of the store, or show what one found.

    Exits 4 when --verify finds damage.
    """
    from flows.opening import store_of
    from schemas.errors import UserError

    where = store_of(store)
    if night is None:
        if verify or out_dir is not None:
            raise UserError("--verify and --out-dir are for one night: name it, or say latest")
        _list(where, last, as_json=as_json)
        return
    found = _found(where, night)
    if verify:
        _verify(where, found, as_json=as_json)
    else:
        _show(where, found, out_dir, as_json=as_json)


def _found(store: "Store", name: str) -> str:
    from schemas.errors import RunNotFound
    from storage.nights import newest_night

    if name == "latest" and (newest := newest_night(store)) is not None:
        return newest
    try:
        return store.nights.find_run(name)
    except RunNotFound as error:
        message = str(error).replace("no run", "no night").replace("runs:", "nights:")
        raise RunNotFound(message, hint="refold nights lists them") from error


def _list(store: "Store", last: int, *, as_json: bool) -> None:
    from flows.terminal import print_json, print_table
    from schemas.errors import LogError
    from storage.nights import read_night
    from tasks.nightly.report import as_json as night_json
    from tasks.nightly.report import headline

    rows, values = [], []
    for name in store.nights.run_ids()[-last:]:
        try:
            night = read_night(store, name)
        except LogError as error:
            rows.append((name, "-", "damaged", str(error)))
            values.append({"night": name, "problem": str(error)})
            continue
        slot = f"{night.started.slot:%Y-%m-%d %H:%M}"
        rows.append((name, slot, _status(night), headline(night)))
        values.append({k: v for k, v in night_json(night).items() if k != "targets"})
    if as_json:
        print_json(values)
    else:
        print_table(("night", "slot, UTC|", "status|", "found"), rows)


def _status(night: "Night") -> str:
    if night.finished is not None:
        return "finished"
    return "open" if night.abandoned is None else "cut off"


def _show(store: "Store", name: str, out_dir: Path | None, *, as_json: bool) -> None:
    from flows.night_view import print_findings
    from flows.terminal import print_json
    from storage.nights import read_night
    from tasks.nightly.report import as_json as night_json
    from tasks.nightly.report import write_report

    night = read_night(store, name)
    written = None if out_dir is None else write_report(night, out_dir)
    if as_json:
        print_json(night_json(night))
        return
    print_findings(night)
    if written is not None:
        print(f"the report is in {written}")


def _verify(store: "Store", name: str, *, as_json: bool) -> None:
    from flows.commands.runs import print_report
    from flows.terminal import print_json
    from storage.verify import verify_night

    report = verify_night(store, name)
    if as_json:
        print_json({**report.model_dump(mode="json"), "ok": report.ok})
    else:
        print_report(report, "night")
    if not report.ok:
        raise typer.Exit(DAMAGED)
