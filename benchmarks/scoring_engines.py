"""How fast each engine scores batches, and from which size on it pays: a Markdown table.

    python -m benchmarks.scoring_engines [--workers N] [ENGINE...]

Trials are of Mixtral 8x22B on four nodes of MI355X, in random order, the same for every engine.
Each engine runs in a process of its own and scores batches of growing size, of trials it has not
seen, as one search does. "start" is the cluster's; what workers import, and price with cold caches,
the first batch waits for. Seconds are of the wall clock, so the load average stands beside them.
"""

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from projection.legality import LegalSpace
from schemas.trial import NormalTrial
from tasks.inputs import Inputs, resolve_pair
from tasks.score import one_by_one
from tasks.scoring import Engine
from tasks.scoring.processes import Processes, available_cpus
from tasks.scoring.question import question
from tasks.scoring.with_dask import Dask
from tasks.scoring.with_ray import Ray

ENGINES: Final = ("inline", "processes", "dask", "ray")
BATCHES: Final = (12, 100, 1000, 5000)
EXAMPLES: Final = Path(__file__).resolve().parents[1] / "examples"
SEED: Final = 1


def inputs() -> Inputs:
    return resolve_pair(
        EXAMPLES / "workloads" / "mixtral_8x22B.yaml",
        EXAMPLES / "clusters" / "mi355x_4nodes.yaml",
        gemm_backend="tile",
    )


def trials(asked: Inputs) -> list[NormalTrial]:
    """Enough for all batches, in one random order."""
    space = LegalSpace(asked.workload, asked.cluster, asked.search)
    every = list(islice(space, 2 * sum(BATCHES)))
    random.Random(SEED).shuffle(every)
    return every[: sum(BATCHES)]


def engine_of(name: str, workers: int, folder: Path) -> Engine | None:
    if name == "inline":
        return None
    if name == "dask":
        return Dask(workers, None, folder)
    return Ray(workers, None) if name == "ray" else Processes(workers)


def measured(name: str, workers: int, folder: Path) -> Iterator[str]:
    """The cells of the engine's row."""
    asked = inputs()
    left = trials(asked)
    evaluator = asked.evaluator()
    begun = time.perf_counter()
    engine = engine_of(name, workers, folder)
    if engine is not None:
        engine.start()
    yield f"{time.perf_counter() - begun:.1f} s"
    for size in BATCHES:
        batch, left = left[:size], left[size:]
        begun = time.perf_counter()
        if engine is None:
            answers = list(one_by_one(evaluator)(batch))
        else:
            answers = list(engine.score(question(asked), batch))
        assert len(answers) == size
        taken = time.perf_counter() - begun
        yield f"{taken:.2f} s" if size < 1000 else f"{size / taken:,.0f}/s"
    begun = time.perf_counter()
    if engine is not None:
        engine.close()
    yield f"{time.perf_counter() - begun:.1f} s"
    yield f"{os.getloadavg()[0]:.1f}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--workers", type=int, default=available_cpus())
    options.add_argument("--row", action="store_true", help=argparse.SUPPRESS)
    options.add_argument("engines", nargs="*", default=ENGINES)
    asked = options.parse_args()
    if asked.row:
        with tempfile.TemporaryDirectory() as folder:
            (name,) = asked.engines
            print(f"| {name} |", " | ".join(measured(name, asked.workers, Path(folder))), "|")
        return
    print(
        "| engine | start |", " | ".join(f"{size:,} trials" for size in BATCHES), "| end | load |"
    )
    print("|" + "---|" * (len(BATCHES) + 4), flush=True)
    for name in asked.engines:
        arguments = ("--row", "--workers", str(asked.workers), name)
        subprocess.run([sys.executable, "-m", "benchmarks.scoring_engines", *arguments], check=True)


if __name__ == "__main__":
    main()
