"""Two processes that resume one run at the same moment: does exactly one of them go on?

    python -m benchmarks.races [--races 100] [--seed-budget 12]

A run is begun by `refold tune` and killed after its first lines. Each race begins with a copy of
its store, where two `refold resume` are started at once. One is to finish the run, exit 0; the
other to write nothing and exit 4, naming the first one's process and host and since when it holds
the run.
Prints a table; exits 1 if a race went otherwise.
"""

import argparse
import re
import shutil
import socket
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from benchmarks.kills import Search, start
from benchmarks.outcome import decided, decided_twice
from schemas.events import RunResumed

HELD = re.compile(
    r"is held by process (\d+) on host (\S+) since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"
)
FAIR = "one went on; the other exited 4 and named it"
LATE = "one went on; the other came when it had ended, and changed nothing"


def begun(search: Search) -> None:
    """Kills a search when it has begun its round."""
    search.folder.mkdir()
    process = start(search.command(), search.folder)
    while process.poll() is None and b"\nround " not in (search.folder / "progress").read_bytes():
        time.sleep(0.001)
    process.kill()
    process.wait()


def race(search: Search) -> str:
    """How a race ends, in words."""
    folders = [search.folder / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
    processes = [start(search.command(), folder) for folder in folders]
    codes = [process.wait() for process in processes]
    records = list(search.log().iterate())
    resumed = sum(isinstance(record.event, RunResumed) for record in records)
    if resumed != 1 or decided_twice(records):
        return f"both wrote: {resumed} resumptions"
    if codes == [0, 0]:
        return LATE
    if sorted(codes) != [0, 4]:
        return f"exit codes {codes}"
    said = (folders[codes.index(4)] / "progress").read_text()
    holder = HELD.search(said)
    winner = processes[codes.index(0)].pid
    if holder is None or holder.groups() != (str(winner), socket.gethostname()):
        return f"the other named somebody else: {said}"
    return FAIR


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--races", type=int, default=100)
    parser.add_argument("--seed-budget", type=int, default=12)
    asked = parser.parse_args()
    ends: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as temporary:
        first = Search(Path(temporary) / "first", "dry", asked.seed_budget)
        begun(first)
        expected = None
        for number in range(asked.races):
            search = Search(Path(temporary) / f"race-{number}", "dry", asked.seed_budget)
            shutil.copytree(first.store, search.store)
            how = race(search)
            expected = expected or decided(search.log())
            ends[how if decided(search.log()) == expected else f"{how}, and ended differently"] += 1
    print(f"| {asked.races} races | count |\n|---|---|")
    for how, count in ends.most_common():
        print(f"| {how} | {count} |")
    return int(bool(ends.keys() - {FAIR, LATE}))


if __name__ == "__main__":
    sys.exit(main())
