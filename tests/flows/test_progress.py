"""What one sees of a search: the same on a terminal as in a file, without the colours."""

import io
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console
from rich.progress import Progress

from flows.progress import LiveDisplay, PlainLines, said_at_the_start
from schemas.events import Envelope, Event
from storage.reading import Record
from tests.end_to_end.made_once import Uninterrupted


def replayed(whole: Uninterrupted) -> tuple[Record, ...]:
    return whole.records


def envelope_of(event: Event) -> Envelope:
    return Envelope(
        run_id="r",
        seq=0,
        type=event.type,
        schema_version=1,
        round=None,
        trial=None,
        at=datetime(2026, 1, 1, tzinfo=UTC),
        prev_hash="",
        hash="",
        payload="",
    )


def test_plain_lines_stop_when_nobody_reads_them_and_the_search_goes_on(
    uninterrupted: Uninterrupted, monkeypatch: pytest.MonkeyPatch
):
    class Gone(io.StringIO):
        def __init__(self) -> None:
            super().__init__()
            self.attempts = 0

        def write(self, text: str) -> int:
            self.attempts += 1
            raise BrokenPipeError

    gone = Gone()
    monkeypatch.setattr("sys.stderr", gone)
    lines = PlainLines()
    for envelope, event in uninterrupted.records:
        lines(event, envelope)
    assert gone.attempts == 1


def test_the_live_display_counts_every_decision_and_names_the_incumbent(
    uninterrupted: Uninterrupted,
):
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100)
    with Progress(console=console, auto_refresh=False) as display:
        live = LiveDisplay(display)
        for envelope, event in uninterrupted.records:
            live(event, envelope)
        (task,) = display.tasks
        assert task.completed == task.total == len(uninterrupted.state.trials)
        assert task.fields["incumbent"].startswith(f"best #{uninterrupted.state.incumbent}: ")


def test_a_lesser_path_is_said_once_at_the_start(
    uninterrupted: Uninterrupted, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    started = uninterrupted.state.spec.model_copy(
        update={"lesser_paths": ("no Origami",), "out_dir": str(tmp_path)}
    )
    for event in (started, *(record.event for record in uninterrupted.records[1:])):
        said_at_the_start(event, envelope_of(event))
    assert capsys.readouterr().err == "note: no Origami\n"


@pytest.mark.parametrize("content", ["", "not json", "[]", "{}"])
def test_an_out_dir_with_something_else_in_it_is_no_earlier_run(
    uninterrupted: Uninterrupted,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    content: str,
):
    (tmp_path / "summary.json").write_text(content)
    started = uninterrupted.state.spec.model_copy(update={"out_dir": str(tmp_path)})
    said_at_the_start(started, envelope_of(started))
    assert capsys.readouterr().err == ""
