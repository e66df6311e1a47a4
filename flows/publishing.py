"""Puts what a flow found on Prefect's pages, and into its events. Call it inside a flow.

All of it is a courtesy: what happened is in the log. So whatever goes wrong here is one line, and
the flow goes on.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from flows.artefacts import workload_of
from flows.opening import store_of
from flows.terminal import say
from storage import EventLog
from tasks.prefect_artifacts import (
    artifact_key,
    best_trials_table,
    escaped,
    picture_markdown,
    search_summary,
)

REQUEST_TIMEOUT_S = 10
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
        _artifacts(
            (
                _table,
                artifact_key("best", *names),
                best_trials_table(state, workload),
                f"Best trials of {of}",
            ),
            (_markdown, artifact_key("trials", *names), picture_markdown(state), f"Trials of {of}"),
            (
                _markdown,
                artifact_key("summary", *names),
                search_summary(state, workload),
                f"Recipe of {of}",
            ),
        )


def publish_report(key: str, markdown: str, description: str) -> None:
    """A report, such as a night's of regressions, as the newest version of `key`."""
    with _without_fail(key):
        _artifacts((_markdown, key, markdown, description))


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


Create = Callable[[str, Any, str], object]


def _table(key: str, data: Any, description: str) -> object:
    from prefect.artifacts import create_table_artifact

    return create_table_artifact(data, key=key, description=description)


def _markdown(key: str, data: Any, description: str) -> object:
    from prefect.artifacts import create_markdown_artifact

    return create_markdown_artifact(data, key=key, description=description)


def _artifacts(*artifacts: tuple[Create, str, Any, str]) -> None:
    from prefect.settings import (
        PREFECT_API_REQUEST_TIMEOUT,
        PREFECT_CLIENT_MAX_RETRIES,
        temporary_settings,
    )

    impatient = {
        PREFECT_CLIENT_MAX_RETRIES: RETRIES,
        PREFECT_API_REQUEST_TIMEOUT: REQUEST_TIMEOUT_S,
    }
    with temporary_settings(impatient):
        for create, key, data, description in artifacts:
            create(key, data, description)


@contextmanager
def _without_fail(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # noqa: BLE001 - Prefect's client raises what its libraries raise
        # The type alone: an error's text may quote what it was given.
        say(f"warning: Prefect's pages do not show {what}: {type(error).__name__}")
