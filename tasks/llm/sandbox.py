"""A session of a model's code in a jail: steps in, outcomes out, and calls of tools between.

What comes out of the jail is checked here as anything from outside: sizes, form, and time.
"""

import json
import os
import select
import subprocess
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

from schemas.errors import EnvironmentMissing
from tasks.llm.jail import INSTALL, START_S, close_jail, open_jail, why_not_jailed
from tasks.llm.plain import plain

STEP_S = 30.0
"""Seconds a step may compute; the time its tools take is theirs."""
MOST_CALLS = 200
"""Calls of tools in a step."""
_LONGEST_MESSAGE = 1 << 20
_LONGEST_TEXT = 50_000

Kind = Literal["output", "error", "final", "stopped"]
Serve = Callable[[str, list[Any], dict[str, Any]], Any]
"""Answers a call: name of the tool, arguments by position and by name → JSON."""


class Outcome(NamedTuple):
    """How a step ended. `stopped`: with it all that the session knew is gone."""

    kind: Kind
    value: Any
    """Text; of `final`, the submitted fields."""


@dataclass(frozen=True, slots=True)
class Step:
    """Code to run, and what it finds in its namespace."""

    code: str
    variables: dict[str, Any]
    tools: tuple[str, ...]
    fields: tuple[str, ...]
    """What `SUBMIT` takes."""


class _Stopped(Exception):
    """The session cannot go on, in words for the model."""


class Sandbox:
    """One session. It has a process from the first step on, and none after `close`."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""

    @property
    def is_open(self) -> bool:
        """Whether there is a session that remembers earlier steps."""
        return self._process is not None

    def run(self, step: Step, serve: Serve) -> Outcome:
        """One step; what `serve` raises ends the session and goes on.

        Raises:
            EnvironmentMissing: no jail can be had.
        """
        try:
            outcome = self._run(step, serve)
        except _Stopped as stopped:
            self.close()
            return Outcome("stopped", str(stopped))
        except BaseException:
            self.close()
            raise
        return outcome

    def close(self) -> None:
        """Ends the session and its processes."""
        process, self._process, self._unread = self._process, None, b""
        if process is not None:
            close_jail(process)

    def _run(self, step: Step, serve: Serve) -> Outcome:
        if self._process is None:
            self._start()
        self._send(
            {
                "run": {
                    "code": step.code,
                    "variables": step.variables,
                    "tools": step.tools,
                    "fields": step.fields,
                }
            }
        )
        left_s, calls = STEP_S, 0
        while True:
            begun = time.monotonic()
            message = self._receive(left_s)
            left_s -= time.monotonic() - begun
            if "done" in message:
                return _outcome(message["done"])
            calls += 1
            if calls > MOST_CALLS:
                raise _Stopped(f"the step was stopped: it made more than {MOST_CALLS} tool calls")
            name, args, kwargs = _call(message, step.tools)
            self._send({"answer": serve(name, args, kwargs)})

    def _start(self) -> None:
        if (why := why_not_jailed()) is not None:
            raise EnvironmentMissing(f"no sandbox for a model's code: {why}", hint=INSTALL)
        self._process = open_jail()
        if "ready" not in self._receive(START_S):
            raise _Stopped("the sandbox did not come up")

    def _send(self, message: dict[str, Any]) -> None:
        """Writes while the worker reads; one that does not read in time is stopped."""
        assert self._process is not None, "a session has a process"
        assert self._process.stdin is not None, "opened with pipes"
        data = memoryview(json.dumps(message, allow_nan=False).encode() + b"\n")
        pipe = self._process.stdin.fileno()
        os.set_blocking(pipe, False)
        deadline = time.monotonic() + STEP_S
        while data:
            if not select.select([], [pipe], [], max(0.0, deadline - time.monotonic()))[1]:
                raise _Stopped("the step was stopped: it does not read what it asked for")
            try:
                data = data[os.write(pipe, data) :]
            except BlockingIOError:
                continue  # less room than a page: look again
            except BrokenPipeError:
                raise _Stopped(_ENDED) from None

    def _receive(self, within_s: float) -> dict[str, Any]:
        assert self._process is not None, "a session has a process"
        assert self._process.stdout is not None, "opened with pipes"
        pipe = self._process.stdout.fileno()
        deadline = time.monotonic() + within_s
        while b"\n" not in self._unread:
            if len(self._unread) > _LONGEST_MESSAGE:
                raise _Stopped("the step was stopped: it sent more than fits a message")
            if not select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))[0]:
                raise _Stopped(f"the step was stopped: it took more than {STEP_S:g} s")
            data = os.read(pipe, 1 << 16)
            if not data:
                raise _Stopped(_ENDED)
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return _message(line)


_ENDED = "the step was stopped: its process ended"
_GARBAGE = "the step was stopped: it wrote where it should not"


def _message(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        raise _Stopped(_GARBAGE) from None
    if not isinstance(message, dict):
        raise _Stopped(_GARBAGE)
    values: dict[str, Any] = plain(message)
    return values


def _outcome(done: Any) -> Outcome:
    """What the worker says of a step, if it is of the form that ours says it in."""
    if not isinstance(done, dict):
        raise _Stopped(_GARBAGE)
    kind, value = str(done.get("kind")), done.get("value")
    expected = {"output": str, "error": str, "final": dict}.get(kind)
    if expected is None or not isinstance(value, expected):
        raise _Stopped(_GARBAGE)
    if len(json.dumps(value, ensure_ascii=False)) > _LONGEST_TEXT:
        raise _Stopped("the step was stopped: its outcome is too long")
    return Outcome(cast("Kind", kind), value)


def _call(message: dict[str, Any], tools: Collection[str]) -> tuple[str, list[Any], dict[str, Any]]:
    name, args, kwargs = (message.get(key) for key in ("call", "args", "kwargs"))
    if name not in tools or not isinstance(args, list) or not isinstance(kwargs, dict):
        raise _Stopped(_GARBAGE)
    return str(name), args, kwargs
