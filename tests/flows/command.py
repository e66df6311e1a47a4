"""Runs `refold` as a person does: another process, its own working directory."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "import sys; sys.argv[0] = 'refold'; from flows.cli import main; main()"


def command_line(*arguments: object) -> list[str]:
    """The argument vector of `refold arguments…` from this checkout."""
    return [sys.executable, "-P", "-c", PROGRAM, *map(str, arguments)]


def environment(**changes: str) -> dict[str, str]:
    """This process's environment without what a developer's machine may set, plus `changes`."""
    ours = ("PREFECT_", "REFOLD_", "LLM_MODEL", "MPLCONFIGDIR")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", **changes}


def refold(
    *arguments: object, cwd: Path, env: Mapping[str, str] | None = None, stdin: str | None = None
) -> "subprocess.CompletedProcess[str]":
    """The finished process; its output as text."""
    return subprocess.run(
        command_line(*arguments),
        cwd=cwd,
        env=dict(env) if env is not None else environment(),
        input=stdin,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
