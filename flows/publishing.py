"""Puts what a flow found on Prefect's pages, and into its events. Call it inside a flow.

All of it is a courtesy: what happened is in the log. So whatever goes wrong here is one line, and
the flow goes on.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from flows.artefacts import workload_of
from flows.opening import store_of
from flows.terminal import say
from storage import EventLog
from storage.nights import Night
from tasks.nightly.report import Finding, findings, headline, markdown
from tasks.prefect_artifacts import (
    artifact_key,
    best_trials_table,
    escaped,
    picture_markdown,
    search_summary,
)

REQUEST_TIMEOUT_S = 10
LONGEST_REPORT = 200
"""Lines of a night's report on a page; the file has all of them."""
RETRIES = 1
"""A server on SQLite answers 503 while it is busy; its pages are not worth minutes of a search."""


def publish_search(store: str | None, run_id: str) -> None:
    """The best trials, the picture and a summary of a run, each a version of its pair's."""
    with _without_fail(f"run {run_id}"):
        log = EventLog.open(store_of(store), run_id)
        state = log.state()
        workload = workload_of(log, state)
        names = (state.spec.workload_name, state.spec.cluster_name)
        of = f"{escaped(names[0])} on {escaped(names[1])}, run {run_id}"
        table = json.dumps(best_trials_table(state, workload), allow_nan=False)
        picture, summary = picture_markdown(state), search_summary(state, workload)
        _create(
            (
                _Artifact("table", artifact_key("best", *names), table, f"Best trials of {of}"),
                _Artifact("markdown", artifact_key("trials", *names), picture, f"Trials of {of}"),
                _Artifact("markdown", artifact_key("summary", *names), summary, f"Recipe of {of}"),
            )
        )


def publish_night(store: str | None, night: Night) -> None:
    """A night's report, an event per regression, and what its searches found."""
    name = night.started.name
    key = artifact_key("night", name)
    said = f"{escaped(headline(night))}, night {night.night_id}"
    publish_report(key, markdown(night, longest=LONGEST_REPORT, quoting=False), said)
    for taken in night.taken.values():
        publish_search(store, taken.run)
    for finding in findings(night):
        if finding.regressed or finding.drifted or finding.failed:
            tell_finding(night, finding)


def publish_report(key: str, text: str, description: str) -> None:
    """A report, in Markdown, as the newest version of `key`."""
    with _without_fail(key):
        _create((_Artifact("markdown", key, text, description),))


def tell_finding(night: Night, finding: Finding) -> None:
    """Tells Prefect of a target that somebody must look at."""
    decided = finding.decided
    payload = {
        "night": night.night_id,
        "change_percent": finding.change_percent,
        "same_recipe_percent": finding.moved_percent,
        "run": decided.run,
        "moved": [known.path for known in decided.moved],
    }
    what = "failure" if finding.failed else "regression"
    tell_event(f"refold.night.{what}", finding.target.name, payload)


def tell_event(name: str, target: str, payload: Mapping[str, Any]) -> None:
    """Tells Prefect of an event that automations can react to, such as `refold.night.regression`.

    It is about the resource `refold.target.<target>`. `payload` is JSON and goes out as it is.
    """
    from prefect.events import emit_event

    with _without_fail(f"event {name}"):
        emit_event(
            event=name,
            resource={
                "prefect.resource.id": f"refold.target.{target}",
                "prefect.resource.name": target,
            },
            payload=dict(payload),
        )


@dataclass(frozen=True, slots=True)
class _Artifact:
    """What Prefect keeps of one, `data` in the form its kind has in the API."""

    kind: Literal["table", "markdown"]
    key: str
    data: str
    description: str


def _create(artifacts: Sequence[_Artifact]) -> None:
    """Adds them to the flow run at hand, by a client of our own: the flow's is a patient one."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import ArtifactCreate
    from prefect.runtime import flow_run
    from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    with (
        temporary_settings({PREFECT_CLIENT_MAX_RETRIES: RETRIES}),
        get_client(httpx_settings={"timeout": REQUEST_TIMEOUT_S}, sync_client=True) as client,
    ):
        for one in artifacts:
            client.create_artifact(
                ArtifactCreate(
                    type=one.kind,
                    key=one.key,
                    data=one.data,
                    description=one.description,
                    flow_run_id=flow_run.id,
                )
            )


@contextmanager
def _without_fail(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - Prefect's client raises what its libraries raise
        # The type alone: an error's text may quote what it was given.
        say(f"warning: Prefect's pages do not show {what}: {type(error).__name__}")
