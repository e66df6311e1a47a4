"""`refold nightly` and `refold nights` on the command line."""

import json
from pathlib import Path

import pytest
import yaml

from tests.end_to_end.nights import write_target, write_targets
from tests.flows.command import refold

pytestmark = pytest.mark.whole

STORE = ("--store", "store", "--out-dir", "out")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target that was tuned, and one whose file is missing."""
    folder = tmp_path_factory.mktemp("nightly")
    write_target(folder / "a", hipblaslt="1", gemm_fp8=1.0)
    write_targets(folder, "a")
    done = refold("nightly", "targets.yaml", "--no-prefect", *STORE, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "the report is in out/report.md" in done.stdout
    assert (folder / "out" / "a" / "recipe" / "workload.yaml").is_file()
    return folder


def nightly(folder: Path, *more: str) -> tuple[int, str, str]:
    done = refold("nightly", "targets.yaml", "--no-prefect", *STORE, *more, cwd=folder)
    return done.returncode, done.stdout, done.stderr


def test_a_second_fire_says_that_it_did_nothing(folder: Path):
    code, out, err = nightly(folder)
    assert code == 0, err
    assert "no search" in out
    assert max(map(len, out.splitlines())) <= 100


def test_json_is_for_machines(folder: Path):
    code, out, err = nightly(folder, "--json", "--slot", "2026-01-05T02:00")
    assert code == 0, err
    night = json.loads(out)
    assert night["finished"]
    assert night["already_done"] is False
    assert night["targets"][0]["outcome"] in ("kept", "first")


def test_a_regression_and_a_failure_are_exit_codes(folder: Path):
    write_target(folder / "a", hipblaslt="2", gemm_fp8=0.5)
    write_targets(folder, "a", "gone")
    code, out, err = nightly(folder, "--slot", "now")
    assert code == 5, err
    assert out.startswith("REGRESSION in a; FAILED: gone;")
    assert "FAILED (WorkloadError)" in err or "FAILED (ClusterError)" in err
    again, out, _ = nightly(folder, "--slot", "2036-01-06T02:00")
    assert again == 6
    assert out.startswith("FAILED: gone;")


def test_nights_are_listed_shown_and_verified(folder: Path):
    listed = refold("nights", "--store", "store", "--json", cwd=folder)
    nights = json.loads(listed.stdout)
    assert nights
    name = nights[0]["night"]
    shown = refold("nights", name, "--store", "store", "--out-dir", "again", cwd=folder)
    assert shown.returncode == 0, shown.stderr
    assert (folder / "again" / "report.md").is_file()
    checked = refold("nights", name, "--store", "store", "--verify", "--json", cwd=folder)
    assert json.loads(checked.stdout)["ok"] is True
    unknown = refold("nights", "2000", "--store", "store", cwd=folder)
    assert unknown.returncode == 2
    assert "refold nights lists them" in unknown.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nightly", "none.yaml"), "none.yaml: no such file"),
        (("nightly", "targets.yaml", "--slot", "soon"), "is no time"),
        (("nightly", "targets.yaml", "--slot", "now", "--serve"), "leave --slot out"),
        (("nights", "--verify"), "name it, or say latest"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    tmp_path: Path, arguments: tuple[str, ...], says: str
):
    target = {"workload": "w.yaml", "target_cluster": "c.yaml"}
    (tmp_path / "targets.yaml").write_text(yaml.safe_dump({"targets": [target]}))
    done = refold(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
