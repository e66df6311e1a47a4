"""Real processes that need not import anything any more: forked by a server that has."""

import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

WAIT_S = 120
PRELOADED = (
    __name__,
    "benchmarks.killed_search",
    "flows.cli",
    "flows.prefect_shell",
    "flows.progress",
    "flows.running",
    "matplotlib.backends.backend_agg",
    "matplotlib.ticker",
)


def start(target: Callable[..., object], *arguments: Any) -> ForkServerProcess:
    """A process that calls `target(*arguments)`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    process = context.Process(target=target, args=arguments)
    process.start()
    return process


def exit_code(process: ForkServerProcess) -> int:
    """How a process ended; minus the signal's number if one ended it."""
    process.join(WAIT_S)
    assert process.exitcode is not None, "the process did not end"
    return process.exitcode


def refold(arguments: tuple[object, ...], folder: Path) -> None:
    """`refold arguments…` in `folder`, to be called in a process of its own; what it says goes to
    the files `answer` and `said` there."""
    os.chdir(folder)
    for name, descriptor in (("answer", 1), ("said", 2)):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    from flows.cli import main

    sys.argv = ["refold", *map(str, arguments)]
    main()
