"""The running process as an owner of leases, and whether an owner of this machine still runs."""

import os
import socket
from datetime import datetime
from pathlib import Path

from storage.backends.lease import Owner

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE = Path("/proc/self/ns/pid")
_ENDED = ("Z", "X")
"""States of a process that is only waiting for its parent to look."""


def this_process(since: datetime) -> Owner:
    """The owner record of the running process."""
    pid = os.getpid()
    return Owner(
        pid=pid,
        process_started=_process_started(pid),
        host=socket.gethostname(),
        since=since,
        machine=_machine(),
    )


def has_died(owner: Owner) -> bool:
    """Whether `owner` was a process of this machine that has ended.

    False also where that cannot be known: another machine or container, which may share a host's
    name and its process numbers.
    """
    if not owner.machine or owner.machine != _machine():
        return False
    started = _process_started(owner.pid)
    if started:
        return started != owner.process_started
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # another user's, which /proc may hide
        pass
    return False


def _machine() -> str:
    """What process numbers are unique in: a boot of a kernel, and a namespace of processes."""
    try:
        return f"{_BOOT_ID.read_text().strip()} {_PID_NAMESPACE.readlink()}"
    except OSError:
        return ""


def _process_started(pid: int) -> str:
    """Start of a process in clock ticks since boot; empty: there is none, or /proc does not say."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()
    return "ended" if fields[0] in _ENDED else fields[19]
