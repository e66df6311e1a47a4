"""How long Refold takes on this machine: `python benchmarks/figures.py` prints a table.

Every figure is the wall time of the command a user would type, the interpreter's start included.
Runs, stores and Prefect's database go to a temporary folder that is removed at the end.
"""

import itertools
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REFOLD = (sys.executable, "-c", "from flows.cli import main; main()")
WORKLOAD = ROOT / "examples/workloads/mixtral_8x22B.yaml"
CLUSTER = ROOT / "examples/clusters/mi355x_4nodes.yaml"
SERVER_START_S = 180


def seconds(arguments: tuple[str, ...], folder: Path, **env: str) -> float:
    """Wall time of `refold ARGUMENTS` in `folder`; a failure ends the benchmark with its output."""
    before = time.perf_counter()
    done = subprocess.run(
        (*REFOLD, *arguments),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    elapsed = time.perf_counter() - before
    if done.returncode != 0:
        sys.exit(f"refold {' '.join(arguments)}: exit code {done.returncode}\n{done.stderr}")
    return elapsed


def tune(folder: Path, *flags: str, **env: str) -> float:
    """Wall time of the main job into a fresh store, so that no answer is already there."""
    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        inputs = ("--workload", str(WORKLOAD), "--target-cluster", str(CLUSTER))
        return seconds(("tune", *inputs, "--seed-only", *flags), Path(fresh), **env)


def questions() -> Iterator[dict[str, object]]:
    """Different configurations of one workload, legal or not, as a search would ask for them."""
    axes = {
        "tp": (1, 2, 4, 8),
        "pp": (1, 2, 4, 8),
        "ep": (1, 2, 4, 8),
        "mbs": (1, 2, 4),
        "recompute_granularity": ("none", "full"),
        "fp8": (None, "hybrid"),
    }
    for values in itertools.product(*axes.values()):
        knobs = {name: value for name, value in zip(axes, values, strict=True) if value is not None}
        yield {"workload": str(WORKLOAD), "cluster": str(CLUSTER), "set": knobs}


def evaluations_per_second(folder: Path) -> float:
    """Answers of `project --batch` per second, its start-up taken off by a batch of one."""
    asked = [json.dumps(question) for question in questions()]
    one, all_of_them = folder / "one.jsonl", folder / "all.jsonl"
    one.write_text(asked[0] + "\n")
    all_of_them.write_text("\n".join(asked) + "\n")
    start = min(seconds(("project", "--batch", str(one)), folder) for _ in range(3))
    whole = min(seconds(("project", "--batch", str(all_of_them)), folder) for _ in range(3))
    return (len(asked) - 1) / (whole - start)


@contextmanager
def standing_server(folder: Path) -> Iterator[str]:
    """A Prefect server of our own, as an operator would have one running; yields its API's URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}/api"
    env = {"PREFECT_HOME": str(folder / "prefect"), "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
    command = (sys.executable, "-m", "prefect", "server", "start", "--no-ui", "--port", str(port))
    server = subprocess.Popen(
        command,
        env={**os.environ, "DO_NOT_TRACK": "1", **env},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await_health(url)
        yield url
    finally:
        server.terminate()
        server.wait()


def await_health(url: str) -> None:
    """Returns once the API at `url` answers; raises TimeoutError if it does not."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + SERVER_START_S
    while time.monotonic() < deadline:
        try:
            opener.open(f"{url}/health", timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise TimeoutError(f"{url} did not come up in {SERVER_START_S} s")


def figures(folder: Path) -> Iterator[tuple[str, str]]:
    """What was measured, and its figure."""
    helps = [seconds(("--help",), folder) for _ in range(5)]
    yield "`refold --help`", f"{statistics.median(helps):.2f} s"
    yield "`project --batch`", f"{evaluations_per_second(folder):,.0f} evaluations/s"
    first = tune(folder, "--no-prefect")
    again = [tune(folder, "--no-prefect") for _ in range(3)]
    yield "`tune --seed-only`, in process, first", f"{first:.1f} s"
    yield "`tune --seed-only`, in process, again", f"{statistics.median(again):.1f} s"
    with standing_server(folder) as url:
        tune(folder, "--prefect", PREFECT_API_URL=url)
        standing = [tune(folder, "--prefect", PREFECT_API_URL=url) for _ in range(3)]
    yield "`tune --seed-only --prefect`, standing server", f"{statistics.median(standing):.1f} s"
    yield "`tune --seed-only --prefect`, temporary server", f"{tune(folder, '--prefect'):.1f} s"


def main() -> None:
    """Prints the table, a line as soon as it is known."""
    print(f"{os.cpu_count()} CPUs, Python {platform.python_version()}\n")
    print("| what | measured |\n|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="refold-figures-") as folder:
        for what, figure in figures(Path(folder)):
            print(f"| {what} | {figure} |", flush=True)


if __name__ == "__main__":
    main()
