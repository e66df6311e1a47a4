"""What one sees while a search runs: drawn from the events as they reach the log, on stderr."""

import json
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from flows.ledger import Listener
from flows.terminal import say
from schemas.events import (
    NEXT_STEPS_AUTHOR,
    SUMMARY_AUTHOR,
    AxesDerived,
    CodeRan,
    Envelope,
    Event,
    LLMCalled,
    NoteTaken,
    RoundStarted,
    RunFinished,
    RunForked,
    RunInterrupted,
    RunStarted,
    TrialProposed,
    TrialRejected,
    TrialScored,
)
from schemas.night import NightStarted, TargetDecided, TargetTaken

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


MODELS = ("planner", "investigator", SUMMARY_AUTHOR, NEXT_STEPS_AUTHOR)
"""Whose notes are shown as they come."""


@contextmanager
def progress(store: str | None) -> Iterator[Sequence[Listener]]:
    """A live display on a terminal, one plain line per phase and trial elsewhere.

    `store` is the run's, as `--store` named it: how to resume is said with it.
    """
    announcements = (said_at_the_start, HowToResume(store))
    if not sys.stderr.isatty():
        yield (*announcements, PlainLines())
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from flows.terminal import console

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[incumbent]}"),
    )
    with Progress(*columns, console=console(stderr=True), transient=True) as display:
        yield (*announcements, LiveDisplay(display))


def said_at_the_start(event: Event, _: Envelope) -> None:
    """What a run does without, and that its out-dir holds another run's artefacts."""
    if not isinstance(event, RunStarted | RunForked):
        return
    spec = event.spec if isinstance(event, RunForked) else event
    for line in spec.lesser_paths:
        say(f"note: {line}")
    earlier = _run_in(Path(spec.out_dir)) if spec.out_dir else None
    if earlier is not None:
        say(f"{spec.out_dir} holds run {earlier}; starting a new one (its log stays in the store)")


def _run_in(out_dir: Path) -> str | None:
    """The run whose summary lies in a folder."""
    try:
        summary = json.loads((out_dir / "summary.json").read_bytes())
    except (OSError, ValueError):
        return None
    return str(summary["run_id"]) if isinstance(summary, dict) and "run_id" in summary else None


class HowToResume:
    """Says it when the run is interrupted, whoever interrupted it."""

    def __init__(self, store: str | None) -> None:
        self._option = f" --store {shlex.quote(store)}" if store else ""

    def __call__(self, event: Event, at: Envelope) -> None:
        """One line, for RunInterrupted."""
        if isinstance(event, RunInterrupted):
            say(f"{event.why}: refold resume {at.run_id}{self._option} goes on from here")


class Incumbent:
    """The best fitting trial among the events seen."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.value = 0.0

    def update(self, event: TrialScored, number: int | None) -> bool:
        """Whether `event` is the new best."""
        value = event.evaluation.tokens_per_s_per_gpu
        if not event.evaluation.fits or value is None or value <= self.value:
            return False
        self.number, self.value = number, value
        return True

    def __str__(self) -> str:
        if self.number is None:
            return "no incumbent yet"
        return f"best #{self.number}: {self.value:,.0f} tokens/s/GPU"


class PlainLines:
    """One line per thing that happened, for as long as somebody reads them."""

    def __init__(self) -> None:
        self._incumbent = Incumbent()
        self._read = True

    def __call__(self, event: Event, at: Envelope) -> None:
        """Prints the event's line, if it has one."""
        line = self._line(event, at.trial)
        if not line or not self._read:
            return
        try:
            print(line, file=sys.stderr, flush=True)
        except BrokenPipeError:
            self._read = False  # a search is not stopped by nobody watching it

    def _line(self, event: Event, number: int | None) -> str | None:
        match event:
            case NightStarted():
                return f"night         {_targets(event)} of {event.name}"
            case TargetTaken():
                return f"target        {event.target}: searching"
            case TargetDecided() if event.outcome != "kept":
                return target_line(event)
            case RunForked():
                self._incumbent = Incumbent()
            case RunStarted():
                self._incumbent = Incumbent()
                return f"resolve       {event.workload_name} on {event.cluster_name}"
            case AxesDerived():
                return f"derive_axes   {len(event.axes.axes)} axes"
            case RoundStarted():
                planned = f"{event.planned} candidate" + ("" if event.planned == 1 else "s")
                return f"round         {planned} from {event.proposer}"
            case LLMCalled():
                return call_line(event)
            case CodeRan():
                return code_line(event)
            case NoteTaken() if event.author in MODELS:
                return note_line(event)
            case TrialRejected():
                return f"memory_filter #{number:<3} rejected: {event.reason}"
            case TrialScored():
                return self._score_line(event, number)
            case RunFinished():
                best = str(self._incumbent)
                if self._incumbent.number is None and event.recipe_trial is not None:
                    best = f"best #{event.recipe_trial}"  # an earlier process's, or a parent's
                return f"finish        {event.why}; {best}"
        return None

    def _score_line(self, event: TrialScored, number: int | None) -> str:
        evaluation = event.evaluation
        best = " ← best" if self._incumbent.update(event, number) else ""
        fits = "" if evaluation.fits else ", does not fit"
        cached = ", from cache" if event.from_cache else ""
        speed = evaluation.tokens_per_s_per_gpu or 0.0
        memory = evaluation.memory_per_gpu_gb or 0.0
        return (
            f"score         #{number:<3} {speed:>9,.0f} tokens/s/GPU"
            f" {memory:>7.1f} GB{fits}{cached}{best}"
        )


def _targets(event: NightStarted) -> str:
    count = len(event.targets)
    return f"{count} target" + ("" if count == 1 else "s")


def target_line(event: TargetDecided) -> str:
    """What a night found of a target."""
    what: str = event.outcome
    if event.failure is not None:
        what = f"FAILED ({event.failure.error}): {event.failure.message}"
    elif event.after is None:
        what = f"{event.outcome}, and nothing legal fits"
    elif event.before is not None:
        change = event.after.tokens_per_s_per_gpu / event.before.tokens_per_s_per_gpu - 1
        what = f"{event.outcome}, {change:+.1%} tokens/s/GPU"
    return f"target        {event.target}: {what}"


def call_line(event: LLMCalled) -> str:
    """Who asked which model, what it took, and how it ended."""
    if event.failure is not None:
        return f"llm           call {event.call}, {event.role} {event.model}: {event.failure}"
    sent, received = event.input_tokens, event.output_tokens
    tokens = "tokens not reported" if sent is None else f"{sent:,} + {received or 0:,} tokens"
    cost = f", {event.cost_usd:.4f} USD" if event.cost_usd else ""
    return (
        f"llm           call {event.call}, {event.role} {event.model}: {tokens}{cost},"
        f" {event.latency_ms / 1000:.1f} s"
    )


def code_line(event: CodeRan) -> str:
    """How a step of a model's code ended, and the last line of what it said."""
    last = event.text.strip().rpartition("\n")[2]
    return f"sandbox       {event.kind}" + (f": {last[:76]}" if last else "")


def note_line(event: NoteTaken) -> str:
    """What a model thinks, on one line of a terminal."""
    text = " ".join(event.text.split())
    return f"{event.author:<13} {text if len(text) <= 84 else text[:83] + '…'}"


class LiveDisplay:
    """A bar per round, with the phase, the trial in hand and the incumbent."""

    def __init__(self, display: "Progress") -> None:
        self._display = display
        self._incumbent = Incumbent()
        self._task: TaskID | None = None
        self._tags: dict[int, str] = {}
        self._night: TaskID | None = None

    def __call__(self, event: Event, at: Envelope) -> None:
        """Moves the display on."""
        number = at.trial
        match event:
            case NightStarted():
                self._night = self._display.add_task(
                    f"targets of {event.name}"[:44], total=len(event.targets), incumbent=""
                )
            case TargetDecided():
                if self._night is not None:
                    self._display.update(self._night, advance=1)
                if event.outcome != "kept":
                    self._say(target_line(event))
            case RunForked():
                self._begin()
                self._show(f"{event.spec.workload_name} on {event.spec.cluster_name}: again")
            case RunStarted():
                self._begin()
                self._show(f"{event.workload_name} on {event.cluster_name}: deriving axes")
            case AxesDerived():
                self._show("planning seeds")
            case RoundStarted():
                self._start(event)
            case LLMCalled():
                self._say(call_line(event))
            case CodeRan():
                self._say(code_line(event))
            case NoteTaken() if event.author in MODELS:
                self._say(note_line(event))
            case TrialProposed() if number is not None:
                self._tags[number] = event.tag or event.rule
                self._grow_to(len(self._tags))
            case TrialRejected():
                self._advance(f"filtering: #{number} {self._tags.get(number or 0, '')}")
            case TrialScored():
                self._incumbent.update(event, number)
                self._advance(f"scoring: #{number} {self._tags.get(number or 0, '')}")

    def _begin(self) -> None:
        """Another run than the one before, in the same process."""
        self._incumbent, self._tags = Incumbent(), {}

    def _start(self, event: RoundStarted) -> None:
        if self._task is not None:
            self._display.remove_task(self._task)
        self._task = self._display.add_task(
            f"{event.proposer} round", total=event.planned, incumbent=str(self._incumbent)
        )

    def _grow_to(self, proposed: int) -> None:
        """A round may propose more than it planned: what is settled unasked is made up for."""
        if self._task is not None:
            total = self._display.tasks[-1].total or 0
            self._display.update(self._task, total=max(total, proposed))

    def _say(self, line: str) -> None:
        """A line that stays, above the bar."""
        self._display.console.print(line, markup=False, highlight=False)

    def _show(self, description: str) -> None:
        if self._task is None:
            self._task = self._display.add_task(description, total=None, incumbent="")
        else:
            self._display.update(self._task, description=description)

    def _advance(self, description: str) -> None:
        if self._task is None:  # a resumed round: its start was another process's
            self._task = self._display.add_task(description, total=None, incumbent="")
        self._display.update(
            self._task, advance=1, description=description[:44], incumbent=str(self._incumbent)
        )
