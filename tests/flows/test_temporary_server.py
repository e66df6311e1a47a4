"""The temporary Prefect API: up when yielded, gone however its parent ends."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flows import temporary_server as module
from flows.temporary_server import answers, temporary_server
from schemas.errors import EnvironmentMissing
from tests.flows.command import ROOT, environment

HOLD = """
import sys, time
from pathlib import Path
from flows.temporary_server import temporary_server
with temporary_server(Path(sys.argv[1])) as server:
    server.ready()
    print(server.url, flush=True)
    sys.stdin.read()
"""


def refused(url: str, within_s: float) -> bool:
    """Whether nothing accepts connections at `url` any more, in time."""
    host, port = url.removesuffix("/api").removeprefix("http://").split(":")
    until = time.monotonic() + within_s
    while time.monotonic() < until:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.prefect
def test_it_answers_while_it_is_wanted_and_outlives_no_parent(tmp_path: Path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        env=environment(PREFECT_HOME=str(tmp_path)),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        url = holder.stdout.readline().strip()
        answers(url, timeout_s=10)
        os.kill(holder.pid, signal.SIGKILL)
        assert holder.wait() == -signal.SIGKILL
    assert refused(url, within_s=20)


def test_one_that_cannot_start_says_where_its_output_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module.sys, "executable", "/bin/false")
    with (
        pytest.raises(EnvironmentMissing, match="did not start") as missing,
        temporary_server(tmp_path) as server,
    ):
        server.ready()
    assert "temporary-server.log" in str(missing.value.hint)
