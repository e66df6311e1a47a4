"""Runs a model's code, inside the jail. It is handed in as one file and imports nothing of ours.

Messages are JSON, a line each. In: {"run": …} with code, variables, tools and the fields of the
answer; then {"answer": …} to each call. Out: {"ready"}, {"call": …}, {"done": …}. Nothing here is
trusted by the other side: the code it runs can do all that this process can.
"""

import ast
import io
import json
import os
import random
import re
import resource
import sys
import threading
from typing import Any

MEMORY_BYTES = 1 << 30
PROCESSOR_S = 600
OPEN_FILES = 64
MOST_OUTPUT = 20_000
"""Characters of what a step prints that are kept, the first half and the last."""
MOST_SUBMITTED = 20_000
SUBMIT = "SUBMIT"
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+")


class Submitted(BaseException):
    """Ends a step with the model's answer."""

    def __init__(self, values: dict[str, Any]) -> None:
        self.values = values


class Printed(io.TextIOBase):
    """What a step prints, its middle left out when it is too much."""

    def __init__(self) -> None:
        self._head, self._tail, self._length = "", "", 0

    def writable(self) -> bool:
        """Always."""
        return True

    def write(self, text: str) -> int:
        """Takes all of it, and keeps what there is room for."""
        self._length += len(text)
        half = MOST_OUTPUT // 2
        room = half - len(self._head)
        if room > 0:
            self._head += text[:room]
            text_left = text[room:]
        else:
            text_left = text
        self._tail = (self._tail + text_left)[-half:]
        return len(text)

    def text(self) -> str:
        """What was kept."""
        left_out = self._length - len(self._head) - len(self._tail)
        middle = f"\n... ({left_out} characters left out) ...\n" if left_out else ""
        return f"{self._head}{middle}{self._tail}"


def rebound(code: str, names: set[str]) -> list[str]:
    """Those of `names` that `code` defines, assigns, imports or takes as a parameter anew."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            found.add(node.id)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            found.add(node.name)
    return sorted(found & names)


class Session:
    """The names a model's code has defined so far, and the way to the host's tools."""

    def __init__(self, channel: "Channel") -> None:
        self._channel = channel
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._tools: dict[str, Any] = {}
        self._fields: list[str] = []

    def run(self, step: dict[str, Any]) -> dict[str, Any]:
        """What became of one step."""
        self._names.update(step["variables"])
        self._fields = step["fields"]
        for name in step["tools"]:
            self._tools.setdefault(name, self._tool(name))
        self._tools[SUBMIT] = self._submit
        self._names.update(self._tools)
        printed = Printed()
        kind, value = self._ran(step["code"], printed)
        changed = sorted(n for n, tool in self._tools.items() if self._names.get(n) is not tool)
        if changed and kind == "output":
            kind, value = "error", _not_yours(changed)
        text = printed.text()
        if kind in ("error", "output") and value:
            text = f"{text.rstrip()}\n{value}".lstrip() if text.strip() else value
        return {"kind": kind, "value": value if kind == "final" else _plain(text)}

    def _ran(self, code: str, printed: Printed) -> tuple[str, Any]:
        sys.stdout = sys.stderr = printed
        try:
            if names := rebound(code, set(self._tools)):
                return "error", _not_yours(names)
            tree = ast.parse(code)
            last = tree.body[-1] if tree.body else None
            if not isinstance(last, ast.Expr):
                exec(compile(tree, "<code>", "exec"), self._names)
                return "output", ""
            tree.body.pop()
            exec(compile(tree, "<code>", "exec"), self._names)
            value = eval(compile(ast.Expression(last.value), "<code>", "eval"), self._names)
            return "output", "" if value is None else _shown(value)
        except Submitted as submitted:
            return "final", submitted.values
        except BaseException as error:  # noqa: BLE001 - whatever a model's code raises
            return "error", _described(error)
        finally:
            sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__

    def _tool(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            return self._channel.call(name, args, kwargs)

        call.__name__ = call.__qualname__ = name
        return call

    def _submit(self, *args: Any, **kwargs: Any) -> None:
        values = dict(zip(self._fields, args, strict=False)) | kwargs
        if set(values) != set(self._fields) or len(args) > len(self._fields):
            raise TypeError(f"SUBMIT takes {', '.join(self._fields)}")
        text = json.dumps(values, allow_nan=False)
        if len(text) > MOST_SUBMITTED:
            raise ValueError(f"SUBMIT takes at most {MOST_SUBMITTED} characters in all")
        raise Submitted(json.loads(text))


class Channel:
    """The two pipes to the host; one call at a time, whatever threads the code has."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in = os.fdopen(os.dup(0), "r", encoding="utf-8")
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8")
        nothing = os.open("/dev/null", os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        os.close(nothing)

    def send(self, message: dict[str, Any]) -> None:
        """A line to the host."""
        print(json.dumps(message, allow_nan=False), file=self._out, flush=True)

    def receive(self) -> dict[str, Any]:
        """A line from the host; the end of the worker when there is no host any more."""
        line = self._in.readline()
        if not line:
            os._exit(0)
        message: dict[str, Any] = json.loads(line)
        return message

    def call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The host's answer to a call of one of its tools."""
        request = {"call": name, "args": args, "kwargs": kwargs}
        text = json.dumps(request, allow_nan=False)  # a TypeError of the code that calls
        with self._lock:
            print(text, file=self._out, flush=True)
            return self.receive()["answer"]


def _not_yours(names: list[str]) -> str:
    return (
        f"{', '.join(names)}: provided by the host. Call it; do not define, assign or import a"
        " thing of that name."
    )


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)


def _described(error: BaseException) -> str:
    line, traceback = None, error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == "<code>":
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an exception of the model's own making
        text = ""
    if isinstance(error, SyntaxError):
        line, text = error.lineno, error.msg
    where = "" if line is None else f" (line {line})"
    return f"{type(error).__name__}: {text[: MOST_OUTPUT // 4]}{where}"


def _plain(text: str) -> str:
    """`text` without addresses, and without what is no Unicode."""
    text = _ADDRESS.sub("at 0x…", text)
    return text.encode("utf-8", "replace").decode("utf-8")


def _limit() -> None:
    for what, limit in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CPU, PROCESSOR_S),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (limit, limit))


def main() -> None:
    """Serves steps until the host is gone."""
    _limit()
    random.seed(0)
    channel = Channel()
    session = Session(channel)
    channel.send({"ready": True})
    while True:
        outcome = session.run(channel.receive()["run"])
        channel.send({"done": outcome})


if __name__ == "__main__":
    main()
