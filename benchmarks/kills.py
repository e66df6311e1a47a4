"""Searches killed with SIGKILL and taken up again, until they are done: is anything lost?

    python -m benchmarks.kills [--kills 200] [--seed 1] [--mode dry] [--seed-budget 12]

Each search has a store of its own. It is begun by `refold tune` and taken up by `refold resume`,
real processes, each killed at a moment chosen by `--seed`: at a random time of its life; a moment
after a random line of its progress; or before a random one of its calls that change a file. What
was acknowledged is known from outside the log: from the progress lines, which are printed once an
event is on disk, or from a file of numbers and hashes (`benchmarks.killed_search`). After each kill
the run is verified and compared with what was acknowledged and read before. At its end it is
compared with a search that nobody interrupted. Prints a table; exits 1 if anything is wrong.
"""

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.outcome import artefacts, decided, decided_twice
from flows.requests import ResumeRequest, TuneRequest
from storage import EventLog, Store, verify
from storage.reading import Record

ROOT = Path(__file__).resolve().parents[1]
REFOLD = "import sys; sys.argv[0] = 'refold'; from flows.cli import main; main()"
WORKLOAD = ROOT / "examples" / "workloads" / "mixtral_8x22B.yaml"
CLUSTER = ROOT / "examples" / "clusters" / "mi355x_4nodes.yaml"
_VERDICT = re.compile(r"^(?:score|memory_filter) +#(\d+) ", re.M)
AT_A_TIME, AFTER_A_LINE, BEFORE_A_CALL = WAYS = (
    "at a random time",
    "after a random line of progress",
    "before a random call that changes a file",
)


@dataclass
class Tally:
    """What was counted."""

    kills: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By way, and by what the process was doing."""
    searches: int = 0
    acknowledged: int = 0
    lost: int = 0
    twice: int = 0
    unreadable: int = 0
    recoveries: int = 0
    failed: int = 0
    ended_differently: int = 0
    problems: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        return sum(self.kills.values())


@dataclass
class Search:
    """One search, over all its processes."""

    folder: Path
    mode: str
    seed_budget: int
    seen: list[tuple[int, str]] = field(default_factory=list)
    """Number and hash of the events read after the last kill."""

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def out_dir(self) -> Path:
        return self.folder / "out"

    def run_id(self) -> str | None:
        """None: no process lived long enough to record the first event."""
        return next(iter(Store.at(self.store).run_ids()), None)

    def log(self) -> EventLog:
        run_id = self.run_id()
        assert run_id is not None
        return EventLog.open(self.store, run_id)

    def command(self) -> list[str]:
        """`refold` as a person would type it now."""
        where = ["--store", str(self.store), "--out-dir", str(self.out_dir), "--no-prefect"]
        verb = ["resume", "latest"]
        if self.run_id() is None:
            files = ["--workload", str(WORKLOAD), "--target-cluster", str(CLUSTER)]
            limits = ["--seed-only", "--mode", self.mode, "--seed-budget", str(self.seed_budget)]
            verb = ["tune", *files, *limits]
        return [sys.executable, "-P", "-c", REFOLD, *verb, *where]

    def driver(self, call: int | None) -> list[str]:
        """The same by `benchmarks.killed_search`, killed before its `call`-th change."""
        request: TuneRequest | ResumeRequest
        if self.run_id() is None:
            request = TuneRequest(
                workload=WORKLOAD,
                target_cluster=CLUSTER,
                store=str(self.store),
                out_dir=self.out_dir,
                mode=self.mode,
                seed_budget=self.seed_budget,
            )
        else:
            request = ResumeRequest(run="latest", store=str(self.store), out_dir=self.out_dir)
        words = [request.model_dump_json(), str(self.folder / "acknowledged")]
        limit = [] if call is None else [str(call)]
        return [sys.executable, "-m", "benchmarks.killed_search", *words, *limit]


def start(command: list[str], folder: Path) -> "subprocess.Popen[bytes]":
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MPLCONFIGDIR": str(folder.parent / "fonts")}
    with (folder / "progress").open("wb") as progress, (folder / "answer").open("wb") as answer:
        return subprocess.Popen(command, cwd=ROOT, env=env, stdout=answer, stderr=progress)


def ends(search: Search, way: str, chooser: random.Random, life_s: float, changes: int) -> int:
    """Starts a process and kills it, unless it ends before that; its exit code."""
    (search.folder / "acknowledged").unlink(missing_ok=True)
    if way == BEFORE_A_CALL:
        return start(search.driver(chooser.randint(1, changes)), search.folder).wait()
    process = start(search.command(), search.folder)
    if way == AT_A_TIME:
        wait_s = chooser.uniform(0, life_s)
    else:
        wait_s = chooser.uniform(0, 0.02)
        lines = chooser.randint(1, search.seed_budget + 6)
        while process.poll() is None and _lines(search) < lines:
            time.sleep(0.0005)
    try:
        return process.wait(wait_s)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _lines(search: Search) -> int:
    return (search.folder / "progress").read_bytes().count(b"\n")


def doing(search: Search, way: str) -> str:
    """What the process was doing when it was killed, as far as it had said."""
    if way == BEFORE_A_CALL:
        last = (search.folder / "acknowledged").read_text().splitlines()[-1]
        _, _, call, path = last.split(" ", 3)
        below = Path(path).relative_to(search.folder).parts
        place = "artefacts" if below[0] == "out" else (*below, "the store itself")[1]
        kinds = {"runs": (*below, "", "", "its folder")[3] or "its folder"}
        return f"{call}, {kinds.get(place, place)}"
    said = (search.folder / "progress").read_text()
    for stage in ("finish", "score", "memory_filter", "round", "derive_axes", "resolve"):
        if re.search(f"^{stage} ", said, re.M):
            return f"after “{stage}”"
    return "starting"


def check(search: Search, tally: Tally) -> None:
    """Compares the run with all that was acknowledged and seen of it."""
    run_id = search.run_id()
    seqs, trials = acknowledged(search)
    if run_id is None:
        tally.lost += len(seqs) + len(trials)
        return
    report = verify(search.store, run_id)
    if not report.ok:
        tally.unreadable += 1
        tally.problems.append(f"{search.folder}: {report.problem}")
        return
    records = list(search.log().iterate())
    now = [(record.envelope.seq, record.envelope.hash) for record in records]
    tally.acknowledged += len(seqs) + len(trials)
    tally.lost += len(set(search.seen) - set(now)) + len(seqs - set(now))
    tally.lost += len(trials - _decided_trials(records))
    tally.twice += decided_twice(records)
    search.seen = now


def acknowledged(search: Search) -> tuple[set[tuple[int, str]], set[int]]:
    """Events and trials that the last process said were safe."""
    file = search.folder / "acknowledged"
    words = [line.split() for line in file.read_text().splitlines()] if file.exists() else []
    seqs = {(int(seq), digest) for seq, digest, *rest in words if seq.isdigit() and not rest}
    said = (search.folder / "progress").read_text()
    # A line cut short by the kill was not said.
    return seqs, {int(n) for n in _VERDICT.findall(said[: said.rfind("\n") + 1])}


def _decided_trials(records: list[Record]) -> set[int | None]:
    kinds = ("TrialScored", "TrialRejected")
    return {r.envelope.trial for r in records if r.envelope.type in kinds}


def uninterrupted(search: Search) -> tuple[float, int]:
    """A search to its end: seconds it took, and the calls it made that change a file."""
    search.folder.mkdir()
    begun = time.monotonic()
    assert start(search.command(), search.folder).wait() == 0
    life_s = time.monotonic() - begun
    counted = Search(search.folder.with_name("counted"), search.mode, search.seed_budget)
    counted.folder.mkdir()
    assert start(counted.driver(None), counted.folder).wait() == 0
    last = (counted.folder / "acknowledged").read_text().splitlines()[-1]
    return life_s, int(last.removeprefix("changes "))


def campaign(folder: Path, kills: int, seed: int, mode: str, seed_budget: int) -> Tally:
    """As many searches as it takes for `kills` kills."""
    chooser, tally = random.Random(seed), Tally()
    whole = Search(folder / "uninterrupted", mode, seed_budget)
    life_s, changes = uninterrupted(whole)
    expected, files = decided(whole.log()), artefacts(whole.out_dir)
    while tally.total < kills:
        search = Search(folder / f"search-{tally.searches}", mode, seed_budget)
        search.folder.mkdir()
        tally.searches += 1
        code = 0
        while tally.total < kills:
            way = WAYS[tally.total % len(WAYS)]
            code = ends(search, way, chooser, life_s, changes)
            if code != -signal.SIGKILL:
                break
            tally.kills[way, doing(search, way)] += 1
            check(search, tally)
        if code in (0, -signal.SIGKILL):
            code = start(search.command(), search.folder).wait()
        if code != 0:
            tally.failed += 1
            tally.problems.append(f"exit {code}: {(search.folder / 'progress').read_text()}")
            continue
        check(search, tally)
        tally.recoveries += len(search.log().state().recoveries)
        if decided(search.log()) != expected or artefacts(search.out_dir) != files:
            tally.ended_differently += 1
            tally.problems.append(f"{search.folder} ended differently")
    return tally


def show(tally: Tally, seed: int) -> None:
    for way in WAYS:
        of_way = {what: n for (by, what), n in sorted(tally.kills.items()) if by == way}
        print(f"{sum(of_way.values()):>4} kills {way}")
        for what, count in sorted(of_way.items(), key=lambda pair: -pair[1]):
            print(f"     {count:>4} {what}")
    rows = {
        "kills (SIGKILL)": tally.total,
        "searches they were spread over": tally.searches,
        "acknowledgements checked": tally.acknowledged,
        "leftovers set aside and recorded": tally.recoveries,
        "acknowledged events lost": tally.lost,
        "events or trials recorded twice": tally.twice,
        "logs that could not be read": tally.unreadable,
        "processes that failed": tally.failed,
        "searches that ended differently": tally.ended_differently,
    }
    print(f"\n| with --seed {seed} | count |\n|---|---|")
    for name, count in rows.items():
        print(f"| {name} | {count} |")
    for problem in tally.problems:
        print(problem, file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mode", default="dry", choices=["dry", "memory-real", "full"])
    parser.add_argument("--seed-budget", type=int, default=12)
    parser.add_argument("--folder", type=Path, help="kept; else a temporary one, removed")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        tally = campaign(folder, asked.kills, asked.seed, asked.mode, asked.seed_budget)
    show(tally, asked.seed)
    wrong = (tally.lost, tally.twice, tally.unreadable, tally.failed)
    return int(any(wrong) or tally.ended_differently > 0)


if __name__ == "__main__":
    sys.exit(main())
