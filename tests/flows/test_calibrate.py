"""`refold calibrate`: rows in, a file out that the oracle then uses and speaks of."""

import json
from pathlib import Path

import pytest
import yaml

from schemas.cluster import Cluster
from schemas.trial import NormalTrial
from tasks.calibrate.measured import from_run
from tests.builders import cluster, mixtral_8x22b
from tests.end_to_end.files import write_inputs
from tests.flows.command import refold
from tests.storage.builders import evaluation, normal_trial

pytestmark = pytest.mark.whole

STATED = {"tp": 1, "pp": 4, "ep": 8, "cp": 1, "mbs": 2, "seq_length": 8192}


def row(name: str, gbs: int, tokens_per_s: float, **fields: object) -> dict[str, object]:
    return {
        "id": name,
        "model": "mixtral_8x22B_v0.1",
        "architecture": "mixtral_8x22B_v0.1",
        "gpu": "mi355x",
        "precision": "bf16",
        "world_size": 32,
        "gpus_per_node": 8,
        "stated": {**STATED, "gbs": gbs, "recompute_granularity": "none"},
        "tokens_per_s_per_gpu": tokens_per_s,
        **fields,
    }


def write(path: Path, *rows: dict[str, object]) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return path


def test_rows_become_a_file_that_slower_rows_make_slower_and_projections_use(
    tmp_path: Path,
) -> None:
    workload, target = write_inputs(tmp_path)
    before = refold("project", workload, target, "--gemm-backend", "tile", "--json", cwd=tmp_path)
    shipped = json.loads(before.stdout)
    rate = shipped["tokens_per_s_per_gpu"]
    rows = write(
        tmp_path / "rows.jsonl",
        *(row(f"r{gbs}", gbs, rate * 0.7, model=f"m{gbs}") for gbs in (128, 256, 512)),
        row("ours", 128, 1.0, gpu="mi999x"),
    )
    fitted = refold(
        *("calibrate", "--from", rows, "--out-dir", "fitted", "--gemm-backend", "tile", "--json"),
        cwd=tmp_path,
    )
    assert fitted.returncode == 0, fitted.stderr
    answer = json.loads(fitted.stdout)
    assert answer["written"] == ["fitted/mi355x.tile.yaml"]
    assert answer["left_out"] == {"ours": "no profile ships for its GPU (mi999x)"}
    calibration = answer["calibrations"][0]
    factors = calibration["factors"]
    assert factors["gemm_bf16"]["value"] < factors["gemm_bf16"]["prior"]
    assert factors["gemm_fp8"]["origin"] == "prior"
    assert any("gemm_fp8" in note for note in calibration["notes"])
    document = yaml.safe_load(target.read_text())
    document["target_cluster"]["calibration"] = "fitted/mi355x.tile.yaml"
    target.write_text(yaml.safe_dump(document))
    after = refold("project", workload, target, "--gemm-backend", "tile", "--json", cwd=tmp_path)
    mine = json.loads(after.stdout)
    assert mine["tokens_per_s_per_gpu"] < 0.9 * rate
    assert mine["signature"]["stack"] != shipped["signature"]["stack"]
    assert mine["signature"]["cluster"] == shipped["signature"]["cluster"]
    assert mine["expected_error"]["nearest"] == "gpu and precision"
    assert mine["expected_error"]["groups"] == 3
    shown = refold("project", workload, target, "--gemm-backend", "tile", cwd=tmp_path).stdout
    assert f"± {100 * mine['expected_error']['band']:.0f} % tokens/s/GPU" in shown
    assert "3 left-out runs in 3 groups" in shown


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((row("r", 128, 1.0, gpu="mi999x"),), "nothing in it can be fitted (no profile ships"),
        ((), "nothing in it can be fitted"),
        ((row("r", 128, 1.0),), "more than 20 times off published rates: wrong unit"),
        ((row("r", 128, -1.0),), "rows.jsonl:1: tokens_per_s_per_gpu: expected at least"),
    ],
)
def test_rows_that_cannot_be_fitted_are_refused_in_one_line(
    tmp_path: Path, rows: tuple[dict[str, object], ...], said: str
) -> None:
    result = refold("calibrate", "--from", write(tmp_path / "rows.jsonl", *rows), cwd=tmp_path)
    assert result.returncode == 2
    assert said in result.stderr.splitlines()[0]


def test_a_run_of_projections_has_nothing_to_fit(tmp_path: Path) -> None:
    workload, target = write_inputs(tmp_path, overrides={"micro_batch_size": 1})
    asked = ("--workload", workload, "--target-cluster", target, "--seed-only", "--no-prefect")
    tuned = refold("tune", *asked, "--seed-budget", 2, "--gemm-backend", "tile", cwd=tmp_path)
    assert tuned.returncode == 0, tuned.stderr
    assert " ± " in tuned.stdout
    assert "→ error        = " in tuned.stdout
    assert " ± " in refold("show", "latest", cwd=tmp_path).stdout
    result = refold("calibrate", "--from", "latest", cwd=tmp_path)
    assert result.returncode == 2
    assert "has no measured trial: all 2 scores are projections" in result.stderr


def test_measured_trials_of_a_run_are_observations_of_its_own_inputs() -> None:
    trials: list[NormalTrial] = [normal_trial(gbs=128), normal_trial(gbs=256)]
    on: Cluster = cluster(4)
    scored = {
        0: evaluation(trials[0], provenance="measured", source="benchmark", iteration_ms=9000.0),
        1: evaluation(trials[1], provenance="analytic", source="simulate", iteration_ms=9000.0),
    }
    found = from_run("a-run", mixtral_8x22b(), on, scored, "tile")
    assert [each.row for each in found.observations] == ["a-run#0"]
    assert found.observations[0].measured_ms == 9000.0
    assert found.observations[0].group == "mixtral_8x22B_v0.1 mi355x bf16 32"
    assert found.cases["a-run#0"].trial == trials[0]
    slow, fast = (found.project(found.observations, {"mi355x": {"gemm_bf16": f}}) for f in (0.7, 1))
    assert slow[0] > fast[0]
