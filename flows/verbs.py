"""How the command line ends: every deliberate error is one line and its exit code.

0 done, 1 nothing legal, 2 the user's input, 3 the environment, 4 the log, 5 a regression, 6 a
target of a night that failed, 70 a bug of ours; 130 interrupted, 141 the reader of our output went
away. A bug alone keeps its traceback.
"""

import errno
import os
import re
import sys
import traceback
from io import TextIOWrapper
from typing import Any

import typer
from typer.core import TyperGroup

from flows.interrupts import Interrupted
from schemas.errors import LONGEST_QUOTE, EnvironmentMissing, RefoldError

INTERRUPTED = 130
"""128 + SIGINT, as shells report it."""
BROKEN_PIPE = 141
"""128 + SIGPIPE."""
USAGE = 2
BUG = 70
"""EX_SOFTWARE of sysexits.h."""
_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}

_UsageError: type[Exception] = typer.BadParameter.__bases__[0]
# Typer carries its own copy of click in some versions and depends on click in others; BadParameter
# is the one name it always exports, and its parent is the class of every usage error.


class Verbs(TyperGroup):
    """The group of all verbs, and the one place where errors become exit codes."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Runs one verb and exits the process with its code."""
        kwargs["standalone_mode"] = False
        _settle_streams()
        sys.exit(self._run(*args, **kwargs))

    def _run(self, *args: Any, **kwargs: Any) -> int:
        try:
            if sys.stdout is None:
                raise EnvironmentMissing("standard output is closed: there is nowhere to answer")
            code = super().main(*args, **kwargs)
            sys.stdout.flush()  # what --help prints; a verb's own is flushed with it
            return code if isinstance(code, int) else 0
        except RefoldError as error:
            report(str(error), error.hint)
            return error.exit_code
        except _UsageError as error:
            return _usage(error)
        except BrokenPipeError:
            _discard_output()
            return BROKEN_PIPE
        except OSError as error:
            return _refused_by_the_system(error)
        except Exception:  # noqa: BLE001 - the last resort: the traceback is printed
            return _bug()

    def invoke(self, ctx: Any) -> Any:
        """Runs the verb; a reader that closed our output (`| head`) is not an error of ours."""
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _discard_output()
            raise typer.Exit(BROKEN_PIPE) from None
        except KeyboardInterrupt as stop:
            if not isinstance(stop, Interrupted):  # which has said how to go on
                report("interrupted", None)
            raise typer.Exit(INTERRUPTED) from None
        return result


def _settle_streams() -> None:
    """Text that the terminal's encoding lacks is escaped, and a closed stderr swallows its lines.

    (`print(file=None)` would put them on stdout, in the middle of the answer.)
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """The interpreter flushes stdout once more on exit: give it somewhere to go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refused_by_the_system(error: OSError) -> int:
    """An error that names no file came from writing to a stream that was open already."""
    if error.filename is None and error.errno is not None:
        _discard_output()
        report(f"the output cannot be written: {error.strerror}", None)
    elif error.errno in _DISK:
        report(f"{error.filename}: {error.strerror}", None)
    else:
        return _bug()
    return EnvironmentMissing.exit_code


def _bug() -> int:
    traceback.print_exc()
    report("this is a bug in Refold: the lines above say where", None)
    return BUG


def report(message: str, hint: str | None) -> None:
    """One line on stderr, and the next thing to do on a second when there is one."""
    print("refold: " + " ".join(message.split()), file=sys.stderr)
    if hint:
        print("  " + " ".join(hint.split()), file=sys.stderr)


def _usage(error: Any) -> int:
    where = error.ctx.command_path if getattr(error, "ctx", None) else "refold"
    message = re.sub(rf"(\S{{{LONGEST_QUOTE}}})\S+", r"\1…", error.format_message())
    report(message, f"{where} --help shows what it takes")
    return USAGE
