"""P5, with a search in miniature: its plan is a list, its log the real one."""

from pathlib import Path

from schemas.events import AxesDerived, Event, RunResumed
from schemas.signature import content_hash
from storage import Entry, EventLog, State, fold, remaining_plan
from tests.storage.builders import (
    RUN,
    Clock,
    axes,
    finished,
    proposed,
    rejected,
    round_finished,
    round_started,
    scored,
    started,
    trial_number,
)

PLAN = list(range(5))


class Killed(Exception):
    """Stands for the death of the process: nothing after it runs."""


class Search:
    """Drives a run from wherever its log says it stands; dies once `lives` events are on disk."""

    def __init__(self, root: Path, lives: int) -> None:
        self.root, self.lives = root, lives
        self.evaluated: list[int] = []

    def run(self) -> State:
        fresh = not (self.root / "runs").exists()
        opened = EventLog.create if fresh else EventLog.open
        options = {} if fresh else {"writing": True}
        with opened(self.root, RUN, clock=Clock(), **options) as log:  # type: ignore[operator]
            self.log = log
            if log.next_seq == 0:
                self.record(started())
            elif log.state().finished is None:
                self.record(RunResumed(refold_version="0", projection_version="0"))
            return self.drive()

    def drive(self) -> State:
        while (step := self.log.state().next_step).kind != "nothing":
            if step.kind == "derive_axes":
                self.record(AxesDerived(axes=axes()))
            elif step.kind == "next_round" and step.round == 0:
                self.record(round_started(len(PLAN)), 0)
            elif step.kind == "next_round":
                self.record(finished(self.log.state().incumbent))
            else:
                self.continue_round(step.in_flight)
        return self.log.state()

    def continue_round(self, in_flight: tuple[int, ...]) -> None:
        for number in in_flight:
            self.decide(number)
        ids = [trial_number(n).trial_id for n in PLAN]
        for position in remaining_plan(self.log.state(), ids):
            self.record(proposed(position), 0, position)
            self.decide(position)
        self.record(round_finished(self.log.state().incumbent), 0)
        self.log.anchor_head()

    def decide(self, number: int) -> None:
        self.evaluated.append(number)
        verdict: Event = rejected(number) if number % 3 == 2 else scored(number)
        self.record(verdict, 0, number)

    def record(
        self, event: Event, round_number: int | None = None, trial: int | None = None
    ) -> None:
        if self.lives == 0:
            raise Killed
        self.log.append([Entry(event, round_number, trial)], self.log.next_seq)
        self.lives -= 1


def essence(state: State) -> str:
    """What must not depend on interruptions: trials, verdicts, rounds, budget, recipe."""
    return content_hash(
        {
            "trials": [
                [t.number, t.round, t.proposed.model_dump(mode="json"), t.status]
                + [e and e.model_dump(mode="json") for e in (t.scored, t.rejected)]
                for t in state.trials.values()
            ],
            "rounds": [[r.number, r.trials, r.finished is not None] for r in state.rounds],
            "spent": [state.spent.seeds, state.spent.perf_calls, state.spent.rounds],
            "incumbent": state.incumbent,
        }
    )


def test_p5_a_run_killed_after_any_event_resumes_to_the_same_end(tmp_path: Path) -> None:
    whole = Search(tmp_path / "whole", lives=1000)
    expected = essence(whole.run())
    events = len(EventLog.open(tmp_path / "whole", RUN).read())
    for lives in range(events):
        root = tmp_path / str(lives)
        first = Search(root, lives)
        try:
            first.run()
        except Killed:
            pass
        else:
            raise AssertionError("the first process was to die")
        second = Search(root, lives=1000)
        state = second.run()
        assert essence(state) == expected, lives
        again = set(first.evaluated) & set(second.evaluated)
        # A trial whose verdict was not yet on disk is decided again, and no other.
        assert len(again) <= 1, lives
        assert fold(EventLog.open(root, RUN).read()) == state


def test_p5_a_run_killed_again_and_again_gets_there(tmp_path: Path) -> None:
    expected = essence(Search(tmp_path / "whole", lives=1000).run())
    deaths = 0
    while True:
        try:
            state = Search(tmp_path / "unlucky", lives=3).run()
            break
        except Killed:
            deaths += 1
    assert deaths > 5
    assert essence(state) == expected
    assert len(state.resumed) == deaths
