"""Runs `refold` in this process: for what its verbs print and how they end."""

from typing import NamedTuple

import pytest
from typer.main import get_command

from flows.cli import app


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def refold_inline(capsys: pytest.CaptureFixture[str], *arguments: object) -> Ended:
    """Exit code, stdout and stderr of `refold arguments…`."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        get_command(app).main([str(argument) for argument in arguments])
    code = ended.value.code
    assert isinstance(code, int)
    return Ended(code, *capsys.readouterr())
