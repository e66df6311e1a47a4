"""`refold server`: a Prefect server for deployments, schedules and everybody's searches."""

import os
import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from flows.options import Json, StoreOption, examples

if TYPE_CHECKING:
    from flows.standing_server import Serving

EXAMPLES = examples(
    "refold server",
    "refold server --port 4300 --store /srv/refold",
    "refold server --no-ui --json",
)


def add_to(app: typer.Typer) -> None:
    """Registers the verb."""
    app.command("server", epilog=EXAMPLES)(server)


def server(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")
    ] = 4200,
    store: StoreOption = None,
    ui: Annotated[bool, typer.Option("--ui/--no-ui", help="Serve Prefect's pages too.")] = True,
    as_json: Json = False,
) -> None:
    """Serve Prefect's API until Ctrl-C, with all its state in the store's folder."""
    from flows.opening import store_of
    from flows.standing_server import is_loopback, serve
    from flows.terminal import json_line, say

    home = store_of(store).local_folder(os.environ) / "prefect"
    if not is_loopback(host):
        say(
            f"warning: whoever reaches {host} can run commands on your workers: the API has no"
            " authentication (PREFECT_SERVER_API_AUTH_STRING sets a password)"
        )

    def announce(serving: "Serving") -> None:
        if as_json:
            fields = (serving.api_url, serving.ui_url, str(serving.home), serving.database)
            names = ("api_url", "ui_url", "home", "database")
            print(json_line(dict(zip(names, fields, strict=True))), flush=True)
        else:
            print(_ready_text(serving), flush=True)

    say("Prefect: starting a server")
    serve(home, host, port, ui=ui, announce=announce)
    say("Prefect: the server has stopped")


def _ready_text(serving: "Serving") -> str:
    pages = "" if serving.ui_url is None else f"\n  pages     {serving.ui_url}"
    settings = (
        f"PREFECT_API_URL={serving.api_url}",
        f"PREFECT_HOME={serving.home}",
        "PREFECT_SERVER_ANALYTICS_ENABLED=false",
        "DO_NOT_TRACK=1",
        "PREFECT_FLOWS_HEARTBEAT_FREQUENCY=30",
    )
    return f"""ready
  API       {serving.api_url}{pages}
  database  {serving.database}

In another shell, from the checkout:
  export {shlex.join(settings)}
  prefect work-pool create refold --type process
  prefect --no-prompt deploy --all
  prefect worker start --pool refold --type process
"""
