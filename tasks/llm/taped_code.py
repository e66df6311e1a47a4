"""A dspy interpreter whose every step is on record: what code asked of the tools, and what it said.

A recorded step is not run again: its tool calls are made again, in order, and its outcome is the
recorded one, so that a replay needs no sandbox and no luck. A session that goes on beyond its
record first runs the recorded steps for their variables, with the recorded calls' answers.
"""

import inspect
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from schemas.events import CodeRan, ToolCalled
from storage.canonical import canonical, sha256_hex
from tasks.llm.halt import Halt
from tasks.llm.plain import plain, plain_text
from tasks.llm.sandbox import Outcome, Sandbox, Step

MOST_STOPS = 3
"""Steps that had to be stopped, after which a turn ends."""
_LONGEST_ARGUMENTS = 20_000
_LONGEST_ERROR = 500
_BATCH = 20
INSTRUCTIONS = (
    "Code runs as Python 3 with the standard library; what it defines is there in later steps. It"
    " has no network, no files and no other processes, a gigabyte of memory, and half a minute a"
    " step. The value of a last expression is shown as if printed. A step that is stopped loses"
    " all variables. Tools take and give JSON values; what goes wrong is in their answer, under"
    ' "error".'
)


class CodeTape(Protocol):
    """Who remembers what code did."""

    def recorded_step(self) -> ToolCalled | CodeRan | None:
        """What the record has next of a step; None: it ends here, and code must be run."""

    def keep(self, event: ToolCalled | CodeRan) -> None:
        """Adds to the record, or compares with it."""


@dataclass(slots=True)
class _Call:
    tool: str
    arguments: dict[str, Any]
    answer: Any


@dataclass(slots=True)
class _Done:
    """A step of the session, and the calls it made."""

    step: Step
    calls: list[_Call] = field(default_factory=list)


class _SomethingElse(Exception):
    """Code that is run again asks for something else than the first time."""


class TapedInterpreter:
    """One turn's interpreter, as `dspy.RLM` wants it.

    Args:
        tape: see `CodeTape`.
        halt: ends the turn when a tool or the tape cannot go on.
    """

    def __init__(self, tape: CodeTape, halt: Halt) -> None:
        self.tools: dict[str, Callable[..., Any]] = {}
        self.output_fields: list[dict[str, Any]] | None = None
        self._tape, self._halt = tape, halt
        self._sandbox = Sandbox()
        self._past: list[_Done] = []
        self._stops = 0

    def start(self) -> None:
        """Nothing: a sandbox is opened by the first step that needs one."""

    def shutdown(self) -> None:
        """Ends the session."""
        self._sandbox.close()

    def execute(self, code: str, variables: dict[str, Any] | None = None) -> Any:
        """One step: its output, or its answer as `dspy.FinalOutput`.

        Raises:
            dspy.CodeExecutionError: what the model can mend.
            dspy.CodeInterpreterError: too many steps had to be stopped.
        """
        import dspy

        if any(name.startswith("__dspy") for name in self.tools):
            # RLM takes this for a runtime without its sub-agents, whose calls no tape could order.
            raise dspy.CodeExecutionError("sub-agents are not available")
        if self._stops >= MOST_STOPS:
            raise dspy.CodeInterpreterError(f"{MOST_STOPS} steps had to be stopped")
        fields = tuple(str(known["name"]) for known in self.output_fields or ())
        step = Step(plain_text(code), dict(variables or {}), tuple(self.tools), fields)
        with self._halt.guarding():
            ran = self._ran(_Done(step))
        if ran.kind == "final":
            return dspy.FinalOutput(ran.submitted)
        if ran.kind == "output":
            return ran.text
        raise dspy.CodeExecutionError(ran.text)

    def _ran(self, done: _Done) -> CodeRan:
        ran = self._from_record(done)
        if ran is None:
            ran = self._live(done)
        if ran.kind == "stopped":
            self._stops += 1
            self._past.clear()
            self._sandbox.close()
        else:
            self._past.append(done)
        return ran

    def _from_record(self, done: _Done) -> CodeRan | None:
        """The recorded end of a step, its calls made again; None: the record ends before it."""
        while (event := self._tape.recorded_step()) is not None:
            if isinstance(event, CodeRan):
                event = event.model_copy(update={"code_sha256": _hash(done.step)})
                self._tape.keep(event)
                return event
            self._tape.keep(event)
            answer = self._answer(event.tool, event.arguments)
            done.calls.append(_Call(event.tool, event.arguments, answer))
        return None

    def _live(self, done: _Done) -> CodeRan:
        before = deque(done.calls)

        def serve(name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
            arguments, wrong = self._bound(name, args, kwargs)
            if wrong is not None:
                return _error(name, wrong)
            if before:
                return _again(before.popleft(), name, arguments)
            self._tape.keep(ToolCalled(tool=name, arguments=arguments))
            answer = self._answer(name, arguments)
            done.calls.append(_Call(name, arguments, answer))
            return answer

        try:
            self._remember()
            outcome = self._sandbox.run(done.step, serve)
        except _SomethingElse:
            words = "the step was interrupted, and its code asks for something else when run again"
            outcome = Outcome("stopped", words)
        event = _event(done.step, outcome)
        self._tape.keep(event)
        return event

    def _remember(self) -> None:
        """Brings a new session to where the recorded one was, as far as its code does the same."""
        if self._sandbox.is_open:
            return
        for done in self._past:
            before = deque(done.calls)

            def serve(
                name: str, args: list[Any], kwargs: dict[str, Any], before: deque[_Call] = before
            ) -> Any:
                arguments, wrong = self._bound(name, args, kwargs)
                if wrong is not None:
                    return _error(name, wrong)
                if not before:
                    raise _SomethingElse
                return _again(before.popleft(), name, arguments)

            if self._sandbox.run(done.step, serve).kind == "stopped":
                raise _SomethingElse

    def _bound(
        self, name: str, args: list[Any], kwargs: dict[str, Any]
    ) -> tuple[dict[str, Any], str | None]:
        """A call's arguments by name, or what is wrong with them."""
        signature = inspect.signature(self.tools[name])
        try:
            arguments = plain(dict(signature.bind(*args, **kwargs).arguments))
        except TypeError as error:
            return {}, f"{name} takes {', '.join(signature.parameters) or 'nothing'}: {error}"
        if len(canonical(arguments)) > _LONGEST_ARGUMENTS:
            return {}, f"{name} takes at most {_LONGEST_ARGUMENTS} characters of arguments"
        return arguments, None

    def _answer(self, name: str, arguments: dict[str, Any]) -> Any:
        """What a tool says; one that fails says why."""
        if name == "llm_query_batched":
            return self._answer_each(arguments.get("prompts"))
        if name == "llm_query" and not isinstance(arguments.get("prompt"), str):
            return _error(name, "llm_query takes a text")
        try:
            return self.tools[name](**arguments)
        except Exception as error:  # noqa: BLE001 - dspy's tools raise whatever they like
            self._halt.check()
            return _error(name, f"{type(error).__name__}: {error}")

    def _answer_each(self, prompts: Any) -> Any:
        """One after the other: dspy would ask in threads, whose order no replay could repeat."""
        if not isinstance(prompts, list) or len(prompts) > _BATCH:
            return _error("llm_query", f"llm_query_batched takes a list of at most {_BATCH} texts")
        return [self._answer("llm_query", {"prompt": prompt}) for prompt in prompts]


class Interpreters:
    """Makes the interpreters of one turn, and says in the prompt what they are."""

    execution_instructions = INSTRUCTIONS

    def __init__(self, tape: CodeTape, halt: Halt) -> None:
        self._tape, self._halt = tape, halt

    def __call__(self) -> TapedInterpreter:
        """A new one."""
        return TapedInterpreter(self._tape, self._halt)


def _again(known: _Call, name: str, arguments: dict[str, Any]) -> Any:
    if (known.tool, known.arguments) != (name, arguments):
        raise _SomethingElse
    return known.answer


def _event(step: Step, outcome: Outcome) -> CodeRan:
    if outcome.kind == "final":
        text, submitted = "", plain(outcome.value)
    else:
        text, submitted = plain_text(outcome.value), None
    return CodeRan(code_sha256=_hash(step), kind=outcome.kind, text=text, submitted=submitted)


def _hash(step: Step) -> str:
    return sha256_hex(step.code.encode())


def _error(name: str, words: str) -> Any:
    """As the tool's answers are: of a model a text, of the others an object."""
    words = plain_text(words[:_LONGEST_ERROR])
    return f"[ERROR] {words}" if name.startswith("llm_query") else {"error": words}
