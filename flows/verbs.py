"""How the command line ends: every deliberate error is one line and its exit code.

0 done, 1 nothing legal, 2 the user's input, 3 the environment, 4 the log; 130 interrupted,
141 the reader of our output went away. What nobody raised on purpose keeps its traceback.
"""

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from flows.interrupts import Interrupted
from schemas.errors import RefoldError

INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""
BROKEN_PIPE = 141
"""128 + SIGPIPE."""
USAGE = 2

_UsageError: type[Exception] = typer.BadParameter.__bases__[0]
# Typer carries its own copy of click in some versions and depends on click in others; BadParameter
# is the one name it always exports, and its parent is the class of every usage error.


class Verbs(TyperGroup):
    """The group of all verbs, and the one place where errors become exit codes."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Runs one verb and exits the process with its code."""
        kwargs["standalone_mode"] = False
        sys.exit(self._run(*args, **kwargs))

    def _run(self, *args: Any, **kwargs: Any) -> int:
        try:
            code = super().main(*args, **kwargs)
            return code if isinstance(code, int) else 0
        except RefoldError as error:
            report(str(error), error.hint)
            return error.exit_code
        except _UsageError as error:
            return _usage(error)

    def invoke(self, ctx: Any) -> Any:
        """Runs the verb; a reader that closed our output (`| head`) is not an error of ours."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # The interpreter flushes stdout once more on exit: give it somewhere to go.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(BROKEN_PIPE) from None
        except KeyboardInterrupt as stop:
            if not isinstance(stop, Interrupted):  # which has said how to go on
                report("interrupted", None)
            raise typer.Exit(INTERRUPTED) from None
        return result


def report(message: str, hint: str | None) -> None:
    """One line on stderr, and the next thing to do on a second when there is one."""
    print("refold: " + " ".join(message.split()), file=sys.stderr)
    if hint:
        print("  " + " ".join(hint.split()), file=sys.stderr)


def _usage(error: Any) -> int:
    where = error.ctx.command_path if getattr(error, "ctx", None) else "refold"
    report(error.format_message(), f"{where} --help shows what it takes")
    return USAGE
