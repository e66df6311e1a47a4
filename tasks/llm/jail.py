"""The jail a model's code runs in: bubblewrap, with Python's standard library and nothing else.

No network, no host file beyond Python and the C libraries, no writable file, no second process, no
environment; a gigabyte of memory. It dies with whoever started it.
"""

import os
import platform
import shutil
import subprocess
import sys
from contextlib import suppress
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

from schemas.errors import EnvironmentMissing
from tasks.llm.syscalls import filter_program

INSTALL = "apt-get install bubblewrap"
_NOBODY = "65534"
_HOME = "/python"
"""Where the jail sees Python."""
START_S = 20.0
"""Seconds a jail may take to come up."""


def open_jail() -> "subprocess.Popen[bytes]":
    """A worker in a new jail; it speaks first.

    Raises:
        EnvironmentMissing: this machine has no bubblewrap, or its system calls are not known.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise EnvironmentMissing("bubblewrap is not installed", hint=INSTALL)
    program = filter_program(platform.machine())
    if program is None or sys.platform != "linux":
        raise EnvironmentMissing(f"there is no sandbox for {sys.platform} on {platform.machine()}")
    read, write = os.pipe()
    try:
        # A pipe holds far more than the filter, so this cannot block.
        os.write(write, program)
        os.close(write)
        with as_file(files("tasks.llm") / "sandbox_worker.py") as worker:
            return subprocess.Popen(
                _command(bwrap, worker, read),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                pass_fds=(read,),
                start_new_session=True,
                env={},
            )
    finally:
        os.close(read)


def close_jail(process: "subprocess.Popen[bytes]") -> None:
    """Ends the jail and everything in it."""
    process.kill()  # bubblewrap's child is init of its processes, and dies with it
    process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with suppress(BrokenPipeError):  # what was not sent, nobody reads any more
                stream.close()


def _command(bwrap: str, worker: Path, seccomp: int) -> list[str]:
    return [
        bwrap,
        *("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"),
        *("--unshare-cgroup-try", "--uid", _NOBODY, "--gid", _NOBODY, "--cap-drop", "ALL"),
        *("--die-with-parent", "--new-session", "--clearenv"),
        # Sets of strings come in the same order in every run.
        *("--setenv", "PYTHONHASHSEED", "0", "--setenv", "LC_ALL", "C.UTF-8"),
        *("--setenv", "PYTHONHOME", _HOME, "--setenv", "LD_LIBRARY_PATH", f"{_HOME}/lib"),
        *(word for pair in _shown_paths() for word in ("--ro-bind", *pair)),
        *("--ro-bind", str(worker), "/worker.py", "--dev-bind", "/dev/null", "/dev/null"),
        *("--chdir", "/", "--remount-ro", "/", "--seccomp", str(seccomp), "--"),
        *(f"{_HOME}/bin/python", "-P", "-s", "-S", "-B", "/worker.py"),
    ]


def _shown_paths() -> list[tuple[str, str]]:
    """Python, whose own place is the host's affair, and the libraries it is linked with."""
    base = os.path.realpath(sys.base_prefix)
    python = os.path.realpath(sys.executable)
    folders = [(f"{base}/{name}", f"{_HOME}/{name}") for name in ("lib", "lib64")]
    system = [(path, path) for path in ("/usr/lib", "/usr/lib64", "/lib", "/lib64")]
    known = [*folders, *system]
    return [
        (python, f"{_HOME}/bin/python"),
        *(pair for pair in known if os.path.exists(pair[0])),
    ]


@cache
def why_not_jailed() -> str | None:
    """Why no jail can be had here, in words; None: one came up. Tried once per process."""
    try:
        process = open_jail()
    except EnvironmentMissing as missing:
        return str(missing)
    except OSError as error:
        return f"bubblewrap does not start: {error.strerror}"
    try:
        process.communicate(timeout=START_S)  # an end of its input ends the worker
    except subprocess.TimeoutExpired:
        return f"bubblewrap does not come up within {START_S:g} s"
    finally:
        close_jail(process)
    if process.returncode != 0:
        return "bubblewrap may not make namespaces here (a container may forbid it)"
    return None
