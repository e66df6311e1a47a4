"""The record of a model's code: each call of a tool, before its answer, and each step's outcome."""

from flows.deciding import entry
from flows.ledger import Recorder
from schemas.events import CodeRan, ToolCalled


class RunCode:
    """The code tape of one run's rounds (`tasks.llm.taped_code.CodeTape`)."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def recorded_step(self) -> ToolCalled | CodeRan | None:
        """What the record has next of a step; None: code must be run.

        Raises:
            RefoldError: the record has something else next.
        """
        return self._recorder.recorded_step()

    def keep(self, event: ToolCalled | CodeRan) -> None:
        """Adds to the record, or compares with it."""
        self._recorder.record(entry(self._recorder, event))
