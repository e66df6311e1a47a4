"""Writers killed with SIGKILL, and writers that race: real processes, real disk."""

import random
import subprocess
import sys
import textwrap
from pathlib import Path

from storage import Entry, EventLog
from tests.storage.builders import RUN, started, written

ROOT = Path(__file__).parents[2]

# Appends notes in batches of 1 to 5 and acknowledges each, after append returned, with the number
# of events the log then holds.
WRITER = """
    import itertools, sys
    from pathlib import Path
    from schemas.events import NoteTaken
    from storage import Entry, EventLog
    log = EventLog.open(Path(sys.argv[1]), sys.argv[2], writing=True)
    print(log.next_seq, flush=True)
    for turn in itertools.count():
        batch = [Entry(NoteTaken(text="x" * 500 * turn, author="w")) for _ in range(turn % 5 + 1)]
        log.append(batch, log.next_seq)
        if turn % 7 == 0:
            log.anchor_head()
        print(log.next_seq, flush=True)
"""


def start(script: str, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def test_p4_no_acknowledged_event_is_lost_to_kill_9(tmp_path: Path) -> None:
    written(tmp_path, [[Entry(started())]])
    chooser = random.Random(4)
    acknowledged = 1
    for _ in range(6):
        process = start(WRITER, str(tmp_path), RUN)
        assert process.stdout is not None
        for _ in range(chooser.randrange(1, 25)):
            acknowledged = int(process.stdout.readline())
        process.kill()
        rest = process.communicate()[0].split()
        acknowledged = int(rest[-1]) if rest else acknowledged
        envelopes = EventLog.open(tmp_path, RUN).read()
        assert len(envelopes) >= acknowledged
        # At most the one batch that was written and not acknowledged, and a recovery.
        assert len(envelopes) <= acknowledged + 6
    state = EventLog.open(tmp_path, RUN).state()
    assert state.head_seq + 1 == len(envelopes)
