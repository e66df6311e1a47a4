"""`refold server`, `prefect deploy`, a worker and a schedule: a night that nobody starts."""

import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from storage import EventLog, Store, list_runs
from storage.nights import read_night
from tasks.nightly.report import headline
from tests.end_to_end.made_once import Standing
from tests.end_to_end.prefect_server import (
    PrefectServer,
    addresses,
    checkout_in,
    eventually,
    prefect,
    prefect_server,
    recording,
    running,
    stopped,
)
from tests.end_to_end.test_under_prefect import wait_until_none
from tests.flows.command import environment

pytestmark = pytest.mark.prefect

PAIR = "refold-mixtral-8x22b-pretrain-mi355x-4nodes"
TELEMETRY_OFF = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}
ENDED = ("COMPLETED", "FAILED", "CRASHED")


@dataclass(frozen=True)
class Site:
    """A machine of a person's: a checkout, a store, a home that stays empty."""

    folder: Path
    checkout: Path
    store: Path
    home: Path
    env: dict[str, str]
    mark: str

    def request(self, **changes: Any) -> dict[str, Any]:
        return {
            "workload": "examples/workloads/mixtral_8x22B.yaml",
            "target_cluster": "examples/clusters/mi355x_4nodes.yaml",
            "store": str(self.store),
            "out_dir": str(self.folder / "out"),
            "gemm_backend": "tile",
            "seed_only": True,
            **changes,
        }

    def night(self) -> dict[str, Any]:
        """A night over the pair of `request`."""
        asked = self.request()
        pair = {"workload": asked["workload"], "target_cluster": asked["target_cluster"]}
        paths = {key: str(self.checkout / path) for key, path in pair.items()}
        settings = {"gemm_backend": "tile", "seed_only": True, "seed_budget": 7}
        targets = self.folder / "targets.yaml"
        targets.write_text(yaml.safe_dump({"targets": [{**paths, **settings, "name": "mixtral"}]}))
        return {
            "targets": str(targets),
            "store": str(self.store),
            "out_dir": str(self.folder / "out"),
        }

    def client(self, server: PrefectServer) -> dict[str, str]:
        """The environment that `refold server` says to export, in another shell."""
        return {
            **self.env,
            "PREFECT_API_URL": server.url,
            "PREFECT_HOME": str(server.said["home"]),
            **TELEMETRY_OFF,
            "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
        }

    def prefect(self, server: PrefectServer, *arguments: str) -> str:
        done = subprocess.run(
            prefect(*arguments),
            cwd=self.checkout,
            env=self.client(server),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def site(tmp_path: Path, standing: Standing) -> Site:
    checkout = checkout_in(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    standing.migrate(tmp_path / "store" / "prefect")
    recorder = recording(tmp_path)
    env = environment(HOME=str(home), REFOLD_TEST_MARK=str(tmp_path))
    # The tests' own sources must not be what the worker runs; nor are Prefect's warnings ours.
    env |= recorder | {"PYTHONPATH": os.pathsep.join((recorder["PYTHONPATH"], str(checkout)))}
    del env["PYTHONWARNINGS"]
    return Site(tmp_path, checkout, tmp_path / "store", home, env, f"REFOLD_TEST_MARK={tmp_path}")


def deploy(site: Site, server: PrefectServer, *, soon: bool = False) -> list[dict[str, Any]]:
    """`prefect.yaml` as it is, but for the test's own requests and, if wanted, a schedule for
    `nightly` that begins soon; what the API has of its deployments."""
    site.prefect(server, "work-pool", "create", "refold", "--type", "process")
    file = site.checkout / "prefect.yaml"
    project = yaml.safe_load(file.read_text())
    deployments = {known["name"]: known for known in project["deployments"]}
    deployments["tune"]["parameters"] = {"request": site.request(seed_budget=7)}
    deployments["nightly"]["parameters"] = {"request": site.night()}
    if soon:
        anchor = datetime.now(UTC) + timedelta(seconds=15)
        schedule = {"interval": 60, "anchor_date": anchor.isoformat(), "slug": "soon"}
        deployments["nightly"]["schedules"] = [schedule]
    file.write_text(yaml.safe_dump(project))
    site.prefect(server, "--no-prompt", "deploy", "--all")
    deployed: list[dict[str, Any]] = server.ask("deployments/filter", limit=10)
    return deployed


def worker(site: Site, server: PrefectServer) -> Any:
    return running(
        prefect("worker", "start", "--pool", "refold", "--type", "process"),
        site.checkout,
        site.client(server),
    )


def first_flow_run(server: PrefectServer, *states: str) -> dict[str, Any] | None:
    """The flow run that began first, once it is in one of the states."""
    begun = server.ask(
        "flow_runs/filter",
        sort="START_TIME_ASC",
        flow_runs={"state": {"type": {"any_": ["RUNNING", *states]}}},
    )
    return begun[0] if begun and begun[0]["state_type"] in states else None


def files_in(folder: Path) -> set[str]:
    """All but what Python compiles."""
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if "__pycache__" not in path.parts
    }


def test_a_worker_picks_up_a_scheduled_night_and_all_of_it_stays_in_the_store(site: Site):
    before = files_in(site.checkout)
    with prefect_server("--store", site.store, cwd=site.folder, env=site.env) as server:
        for deployment in deploy(site, server, soon=True):
            assert TELEMETRY_OFF.items() <= deployment["job_variables"]["env"].items()
        settings = server.ask("admin/settings")
        assert settings["server"]["analytics_enabled"] is False
        assert settings["home"] == str(site.store / "prefect")
        with worker(site, server) as process:
            done = eventually(lambda: first_flow_run(server, *ENDED), 240, "a scheduled run")
            assert stopped(process, signal.SIGINT) == 0
        assert (done["state_type"], done["auto_scheduled"]) == ("COMPLETED", True)
        artifacts = server.artifacts()

    (run,) = list_runs(site.store)
    state = EventLog.open(site.store, run.run_id).state()
    assert state.finished is not None
    assert state.best is not None
    (name,) = Store.at(site.store).nights.run_ids()
    night = read_night(Store.at(site.store), name)
    assert night.finished is not None
    assert night.decided["mixtral"].run == run.run_id
    pages = {f"{PAIR}-{kind}" for kind in ("best", "trials", "summary")}
    assert set(artifacts) == {*pages, "refold-targets-night"}
    assert artifacts["refold-targets-night"].startswith(f"# {headline(night)}")
    best = json.loads(artifacts[f"{PAIR}-best"])
    assert [row["trial"] for row in best] == [trial.number for trial in state.ranked()]
    assert run.run_id in artifacts[f"{PAIR}-summary"]
    assert artifacts[f"{PAIR}-trials"].startswith("![trials](data:image/png;base64,")

    assert wait_until_none(site.mark, within_s=20) == []
    assert list(site.home.iterdir()) == []
    assert files_in(site.checkout) == before
    assert {path.name for path in site.folder.iterdir()} == {
        "checkout", "store", "home", "hook", "addresses", "out", "targets.yaml",
    }  # fmt: skip
    assert server.said["database"] == str(site.store / "prefect" / "prefect.db")
    assert addresses(site.folder) == {"127.0.0.1"}  # of server, worker, flow and commands


def events(site: Site, of_type: str) -> list[int]:
    """Numbers of the trials of these events, in order, in the one run of the store."""
    runs = Store.at(site.store).run_ids()
    assert len(runs) < 2
    records = [record for run in runs for record in EventLog.open(site.store, run).iterate()]
    return [r.envelope.trial or 0 for r in records if r.envelope.type == of_type]


def scores(site: Site) -> list[int]:
    return events(site, "TrialScored")


def engine_of(site: Site) -> int | None:
    """The process in which the flow runs, if there is one."""
    for process in Path("/proc").iterdir():
        try:
            ours = site.mark.encode() in (process / "environ").read_bytes()
            if ours and b"prefect.engine" in (process / "cmdline").read_bytes():
                return int(process.name)
        except OSError:  # not a process, gone, or another user's
            continue
    return None


def killed_while_scoring(site: Site) -> list[int]:
    """Lets the flow go on in small steps until it has scored a trial, and kills it there."""
    engine = eventually(lambda: engine_of(site), 120, "a flow's process")
    eventually(lambda: events(site, "TrialProposed") or None, 120, "a candidate")
    while True:
        os.kill(engine, signal.SIGSTOP)
        if before := scores(site):
            os.kill(engine, signal.SIGKILL)
            return before
        os.kill(engine, signal.SIGCONT)
        time.sleep(0.05)


def ended_again(site: Site, server: PrefectServer) -> dict[str, Any] | None:
    """The end of the second attempt. A worker may report the first one's crash twice, the second
    time after somebody has asked for another attempt: then that is asked for again."""
    run = first_flow_run(server, *ENDED)
    if run is not None and run["state_type"] == "CRASHED" and run["run_count"] == 1:
        site.prefect(server, "flow-run", "retry", run["id"])
        return None
    return run


def test_a_killed_flow_run_that_is_run_once_more_repeats_no_finished_trial(site: Site):
    arguments = ("--no-ui", "--store", site.store)
    with prefect_server(*arguments, cwd=site.folder, env=site.env) as server:
        deployed = {known["name"]: known for known in deploy(site, server)}
        (schedule,) = deployed["nightly"]["schedules"]
        assert schedule["schedule"]["cron"] == "0 2 * * *"
        tune = deployed["tune"]["id"]
        with worker(site, server) as process:
            request = site.request(seed_budget=120)
            server.ask(f"deployments/{tune}/create_flow_run", parameters={"request": request})
            before = killed_while_scoring(site)
            crashed = eventually(lambda: first_flow_run(server, *ENDED), 60, "a crashed run")
            assert crashed["state_type"] == "CRASHED"
            (run,) = list_runs(site.store)
            assert run.status == "open"
            site.prefect(server, "flow-run", "retry", crashed["id"])
            done = eventually(lambda: ended_again(site, server), 240, "the second attempt")
            assert stopped(process, signal.SIGINT) == 0
    assert (done["state_type"], done["id"], done["run_count"]) == ("COMPLETED", crashed["id"], 2)
    (run,) = list_runs(site.store)
    assert run.status == "finished"
    after = scores(site)
    assert len(after) == len(set(after)) > len(before)
    assert after[: len(before)] == before
