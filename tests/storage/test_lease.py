import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from schemas.errors import RunLocked
from storage import Entry, EventLog
from storage.backends.lease import Owner
from tests.storage.builders import RUN, START, Clock, started, whole_run, written

HOLD = """
    import sys
    from pathlib import Path
    from storage import EventLog
    log = EventLog.open(Path(sys.argv[1]), sys.argv[2], writing=True)
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_p14_the_same_process_cannot_write_twice_at_once(tmp_path: Path) -> None:
    with EventLog.create(tmp_path, RUN) as log:
        log.append([Entry(started())], 0)
        with pytest.raises(RunLocked, match=f"process {os.getpid()}"):
            EventLog.open(tmp_path, RUN, writing=True)
        log.append([Entry(started())], 1)
        # The refused attempt must not have dropped the lock this process holds.
        script = textwrap.dedent(HOLD)
        other = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path), RUN],
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parents[2],
        )
        assert "RunLocked" in other.stderr
        assert f"process {os.getpid()}" in other.stderr


def test_a_closed_log_frees_the_lease_and_takes_no_more_events(tmp_path: Path) -> None:
    log = EventLog.create(tmp_path, RUN)
    log.append([Entry(started())], 0)
    log.close()
    log.close()
    with EventLog.open(tmp_path, RUN, writing=True) as again:
        assert again.lease is not None
        assert again.lease.took_over is None
    assert not (tmp_path / "leases" / f"{RUN}.json").exists()


def test_a_reused_pid_is_another_process(tmp_path: Path) -> None:
    written(tmp_path, whole_run(1))
    record = Owner(
        pid=os.getpid(), process_started="long ago", host=os.uname().nodename, since=START
    )
    (tmp_path / "leases" / f"{RUN}.json").write_text(record.model_dump_json())
    with EventLog.open(tmp_path, RUN, writing=True) as log:
        assert log.lease is not None
        assert log.lease.took_over == record


def test_a_failed_opening_gives_the_lease_back(tmp_path: Path) -> None:
    from tests.storage.builders import segments

    written(tmp_path, whole_run(1))
    data = segments(tmp_path)[0].read_bytes()
    segments(tmp_path)[0].write_bytes(b"")
    with pytest.raises(Exception, match="torn"):
        EventLog.open(tmp_path, RUN, writing=True)
    segments(tmp_path)[0].write_bytes(data)
    EventLog.open(tmp_path, RUN, writing=True, clock=Clock()).close()
