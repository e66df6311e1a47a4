"""Reports and events on Prefect's pages, and searches that do not care whether these are there."""

import json
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.end_to_end.made_once import Standing, Uninterrupted
from tests.end_to_end.prefect_server import eventually
from tests.flows.command import ROOT

pytestmark = pytest.mark.prefect

REPORTING = """
from prefect import flow
from flows.publishing import publish_report, tell_event

@flow(name="reporting", persist_result=False)
def reporting():
    publish_report("refold-night-report", "# one\\n", "the first night")
    publish_report("refold-night-report", "# two\\n", "the second night")
    tell_event("refold.night.regression", "mixtral-on-mi355x", {"worse_by": 0.07})

reporting()
"""
FAILING = """
import sys
from prefect import flow
from prefect.settings import PREFECT_API_URL, temporary_settings
from flows.publishing import publish_search

@flow(name="failing", persist_result=False)
def failing():
    with temporary_settings({PREFECT_API_URL: sys.argv[1]}):
        publish_search(sys.argv[2], sys.argv[3])
    return "the search's own answer"

print(failing())
"""


def run(program: str, standing: Standing, *arguments: object) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=ROOT,
        env=standing.environment | {"PREFECT_LOGGING_LEVEL": "CRITICAL", "DO_NOT_TRACK": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def ask(standing: Standing, path: str, **body: Any) -> Any:
    request = urllib.request.Request(
        f"{standing.url}/{path}",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request) as answer:
        return json.load(answer)


def test_a_report_is_the_newest_version_of_its_key_and_an_event_reaches_the_server(
    standing: Standing,
):
    done = run(REPORTING, standing)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    key = {"artifacts": {"key": {"any_": ["refold-night-report"]}}}
    assert [a["data"] for a in ask(standing, "artifacts/latest/filter", **key)] == ["# two\n"]
    versions = ask(standing, "artifacts/filter", sort="CREATED_DESC", **key)
    assert [a["description"] for a in versions] == ["the second night", "the first night"]

    def told() -> Any:
        target = {"id": ["refold.target.mixtral-on-mi355x"]}
        wanted = {"event": {"name": ["refold.night.regression"]}, "resource": target}
        return ask(standing, "events/filter", filter=wanted)["events"] or None

    (event,) = eventually(told, 60, "the event")  # the server writes them down in batches
    assert event["resource"]["prefect.resource.id"] == "refold.target.mixtral-on-mi355x"
    assert event["payload"] == {"worse_by": 0.07}
    assert any(r["prefect.resource.role"] == "flow-run" for r in event["related"])


@pytest.fixture
def unavailable() -> Iterator[str]:
    """The URL of an API that answers 503, as Prefect's does on a busy SQLite."""

    class Unavailable(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Unavailable) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/api"
        server.shutdown()


def says_one_line_and_goes_on(standing: Standing, finished: Uninterrupted, url: str) -> None:
    done = run(FAILING, standing, url, finished.store, finished.run_id)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "the search's own answer\n"
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"warning: Prefect's pages do not show run {finished.run_id}: ")


def test_an_api_that_is_busy_fails_no_finished_search(
    standing: Standing, uninterrupted: Uninterrupted, unavailable: str
):
    says_one_line_and_goes_on(standing, uninterrupted, unavailable)


def test_an_api_that_is_gone_fails_no_finished_search(
    standing: Standing, uninterrupted: Uninterrupted
):
    says_one_line_and_goes_on(standing, uninterrupted, "http://127.0.0.1:1/api")
