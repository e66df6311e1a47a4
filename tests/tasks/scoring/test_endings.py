"""However a process that scores ends, its workers end too; and what goes wrong far away is said."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.errors import EnvironmentMissing
from tasks.scoring import ScoringLost
from tasks.scoring.patience import Patience
from tasks.scoring.with_dask import Dask
from tasks.scoring.with_ray import Ray
from tests.flows.command import ROOT, environment
from tests.tasks.scoring.batches import MOE, asking, batch_of
from tests.tasks.scoring.evaluators import Slow

pytestmark = pytest.mark.slow

WAIT_S = 120
IMPATIENT = Patience(connect_s=1, look_s=0.2, stranded_s=1)
CLUSTER = """
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(
        n_workers={workers}, threads_per_worker=1, host="127.0.0.1",
        dashboard_address="127.0.0.1:0", local_directory="dask",
    ) as cluster:
        print(cluster.scheduler_address, flush=True)
        input()
"""


def workers_of(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.iterdir() if path.name.isdigit()]


def wait_until(true: object, what: str) -> None:
    assert callable(true)
    until = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def is_running(pid: int) -> bool:
    """Whether a process is there and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("name", ["processes", "dask"])
@pytest.mark.parametrize("how", ["kill -9", "Ctrl-C"])
def test_no_worker_outlives_the_process_it_scores_for(name: str, how: str, tmp_path: Path):
    victim = subprocess.Popen(
        [sys.executable, "-m", "tests.tasks.scoring.victim", name, str(tmp_path)],
        cwd=ROOT,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_until(lambda: len(workers_of(tmp_path)) == 2, "the workers did not begin")
    workers = workers_of(tmp_path)
    if how == "kill -9":
        victim.kill()
    else:
        os.killpg(victim.pid, signal.SIGINT)
    _, said = victim.communicate(timeout=WAIT_S)
    wait_until(lambda: not any(map(is_running, workers)), f"{workers} are still there")
    assert victim.returncode == (-signal.SIGKILL if how == "kill -9" else 130)
    assert "Traceback" not in said


@pytest.fixture
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A Dask cluster of another process, which says its address."""
    program = tmp_path / "cluster.py"
    program.write_text(CLUSTER.format(workers=request.param))
    process = subprocess.Popen(
        [sys.executable, str(program)],
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        yield process
        process.kill()


def address_of(cluster: "subprocess.Popen[str]") -> str:
    assert cluster.stdout is not None
    return cluster.stdout.readline().strip()


@pytest.mark.parametrize("elsewhere", [1], indirect=True)
def test_a_cluster_that_is_lost_ends_the_batch_in_one_error(
    elsewhere: "subprocess.Popen[str]", tmp_path: Path
):
    engine = Dask(0, address_of(elsewhere), tmp_path, IMPATIENT)
    answers = engine.score(asking(Slow, MOE, tmp_path, 0.05), batch_of(MOE))
    next(answers)
    elsewhere.kill()
    with pytest.raises(ScoringLost, match="does not answer for its trials"):
        list(answers)
    engine.close()


@pytest.mark.parametrize("elsewhere", [0], indirect=True)
def test_a_cluster_without_workers_is_refused(elsewhere: "subprocess.Popen[str]", tmp_path: Path):
    with pytest.raises(EnvironmentMissing, match="cannot be used: Only 0/1 workers arrived"):
        Dask(0, address_of(elsewhere), tmp_path, IMPATIENT).start()


def test_a_place_where_no_cluster_is_is_refused(tmp_path: Path):
    with pytest.raises(EnvironmentMissing, match=r"Dask at tcp://127.0.0.1:9 cannot be used"):
        Dask(0, "tcp://127.0.0.1:9", tmp_path, IMPATIENT).start()
    with pytest.raises(EnvironmentMissing, match=r"Ray at 127.0.0.1:9 cannot be used"):
        Ray(0, "127.0.0.1:9", IMPATIENT).start()
