"""`refold tune` from files to artefacts, and the verbs that read what it left."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from projection.legality import normalise
from schemas.trial import TrialConfig
from storage import EventLog
from tasks.resolve import resolve_workload
from tests.end_to_end.files import write_inputs
from tests.end_to_end.made_once import Uninterrupted
from tests.flows.inline import Ended, refold_inline

ARTEFACTS = {
    "trials.jsonl",
    "trials.png",
    "scratchpad.txt",
    "summary.json",
    "trials",
    "recipe",
}
FILES = ("--workload", "workload.yaml", "--target-cluster", "cluster.yaml")
LIMITS = ("--no-prefect", "--gemm-backend", "tile", "--seed-only")

Run = Any


@pytest.fixture
def refold(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))
    write_inputs(tmp_path)

    def run(*arguments: object) -> Ended:
        return refold_inline(capsys, *arguments)

    return run


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_it_leaves_every_artefact_and_prints_the_best_configuration(refold: Run, tmp_path: Path):
    done = refold("tune", *FILES, *LIMITS)
    out = tmp_path / "tuning_runs" / "pod"
    assert done.code == 0
    assert {path.name for path in out.iterdir()} == ARTEFACTS
    best = json.loads((out / "summary.json").read_text())["best"]
    assert "=== BEST CONFIGURATION ===" in done.out
    assert f"trial #{best['trial']}  source=simulate" in done.out
    assert f"tokens/s/GPU = {best['evaluation']['tokens_per_s_per_gpu']:,.0f}" in done.out
    assert "=== EXPORTS for primus-cli ===" in done.out
    assert "artefacts are in tuning_runs/pod" in done.out
    assert "Traceback" not in done.err


def test_the_progress_names_every_decision_once(refold: Run, tmp_path: Path):
    done = refold("tune", *FILES, *LIMITS)
    log = EventLog.open(
        tmp_path / ".refold", json.loads(refold("show", "latest", "--json").out)["run_id"]
    )
    decided = [int(n) for n in re.findall(r"^(?:memory_filter|score) +#(\d+)", done.err, re.M)]
    assert sorted(decided) == sorted(log.state().trials)
    assert re.search(r"^resolve .*\nderive_axes .*\nround ", done.err, re.M)
    assert re.search(r"^finish .*best #", done.err, re.M)


def test_json_prints_the_summary_and_nothing_else(refold: Run, tmp_path: Path):
    done = refold("tune", *FILES, *LIMITS, "--json", "--out-dir", "out")
    assert json.loads(done.out) == json.loads((tmp_path / "out" / "summary.json").read_text())


def test_deleted_artefacts_come_back_byte_for_byte(refold: Run, tmp_path: Path):
    refold("tune", *FILES, *LIMITS, "--out-dir", "out")
    before = contents(tmp_path / "out")
    for name in before:
        (tmp_path / "out" / name).unlink()
    assert refold("export", "latest").code == 0
    assert contents(tmp_path / "out") == before
    refold("export", "latest", "--out-dir", "elsewhere")
    assert contents(tmp_path / "elsewhere") == before


def test_every_trial_file_reads_back_to_its_trial(refold: Run, tmp_path: Path):
    refold("tune", *FILES, *LIMITS, "--seed-budget", 60)
    run_id = json.loads(refold("show", "latest", "--json").out)["run_id"]
    state = EventLog.open(tmp_path / ".refold", run_id).state()
    files = sorted((tmp_path / "tuning_runs" / "pod" / "trials").iterdir())
    assert len(files) == len(state.trials) > 12
    for number, path in enumerate(files):
        again = resolve_workload(path)
        assert normalise(TrialConfig(), again) == state.trials[number].proposed.config, path.name


def test_the_recipe_runs_again_as_the_baseline_it_now_is(refold: Run, tmp_path: Path):
    refold("tune", *FILES, *LIMITS)
    recipe = tmp_path / "tuning_runs" / "pod" / "recipe" / "workload.yaml"
    best = json.loads((tmp_path / "tuning_runs" / "pod" / "summary.json").read_text())["best"]
    again = json.loads(
        refold("project", recipe, "cluster.yaml", "--gemm-backend", "tile", "--json").out
    )
    assert again["trial_id"] == best["trial_id"]
    assert again["memory_per_gpu_gb"] == pytest.approx(best["evaluation"]["memory_per_gpu_gb"])


def test_a_second_run_into_the_same_out_dir_is_a_run_of_its_own_and_says_so(refold: Run):
    refold("tune", *FILES, *LIMITS)
    again = refold("tune", *FILES, *LIMITS)
    listed = json.loads(refold("runs", "--json").out)
    assert again.code == 0
    assert len({run["run_id"] for run in listed}) == 2
    assert f"tuning_runs/pod holds run {listed[0]['run_id']}; starting a new one" in again.err


def test_a_second_run_takes_scores_from_the_cache_and_says_so(refold: Run):
    refold("tune", *FILES, *LIMITS)
    again = refold("tune", *FILES, *LIMITS)
    scores = [line for line in again.err.splitlines() if line.startswith("score")]
    assert scores
    assert all("from cache" in line for line in scores)


@pytest.mark.parametrize(
    ("options", "source"), [(("--dry-run",), "dry"), (("--mode", "memory-real"), "memory_real")]
)
def test_made_up_numbers_are_labelled_everywhere(
    refold: Run, tmp_path: Path, options: tuple[str, ...], source: str
):
    done = refold("tune", *FILES, *LIMITS, *options, "--out-dir", "out")
    assert f"source={source}" in done.out
    assert "provenance: synthetic" in done.out
    lines = (tmp_path / "out" / "trials.jsonl").read_text().splitlines()
    scored = [line for line in map(json.loads, lines) if line["source"] == source]
    assert scored
    assert {line["result"]["provenance"] for line in scored} == {"synthetic"}


def test_a_dry_number_never_stands_for_a_real_one(refold: Run):
    refold("tune", *FILES, *LIMITS, "--dry-run")
    real = refold("tune", *FILES, *LIMITS)
    assert "from cache" not in real.err


def test_when_nothing_fits_it_says_what_binds_and_what_would_loosen_it(refold: Run, tmp_path: Path):
    write_inputs(tmp_path, nodes=1)
    done = refold("tune", *FILES, *LIMITS, "--seed-budget", 6, "--out-dir", "out")
    assert done.code == 1
    assert "=== NO LEGAL CONFIGURATION ===" in done.out
    assert "what bound:" in done.out
    assert done.err.splitlines()[-2].startswith("refold: nothing legal fits: ")
    assert {path.name for path in (tmp_path / "out").iterdir()} == ARTEFACTS - {"recipe"}
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["best"] is None
    assert summary["binding_constraints"]


def test_no_llm_means_seeds_only_and_one_line_that_says_so(refold: Run):
    loud = refold("tune", *FILES, "--no-prefect", "--gemm-backend", "tile")
    quiet = refold("tune", *FILES, *LIMITS)
    said = "no language model is configured (--llm, LLM_MODEL): the seed plan alone proposes"
    assert loud.err.splitlines().count(said) == 1
    assert said not in quiet.err


def test_show_fits_100_columns_and_names_the_best(refold: Run):
    refold("tune", *FILES, *LIMITS)
    shown = refold("show", "latest").out
    assert all(len(line) <= 100 for line in shown.splitlines())
    assert shown.count("← best") == 1
    assert all(len(line) <= 100 for line in refold("runs").out.splitlines())


def test_show_events_lists_them_all_in_order(refold: Run):
    refold("tune", *FILES, *LIMITS)
    shown = [
        json.loads(line) for line in refold("show", "latest", "--events", "--json").out.splitlines()
    ]
    assert [event["seq"] for event in shown] == list(range(len(shown)))
    assert shown[0]["type"] == "RunStarted"
    assert shown[-1]["type"] == "RunFinished"
    assert len(refold("show", "latest", "--events").out.splitlines()) == len(shown)


def test_verify_passes_an_intact_run_and_fails_a_changed_one(refold: Run, tmp_path: Path):
    refold("tune", *FILES, *LIMITS)
    assert refold("verify", "latest").code == 0
    segments = tmp_path.glob(".refold/runs/*/events/*.parquet")
    largest = max(segments, key=lambda path: path.stat().st_size)  # the proposals
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 1
    largest.write_bytes(data)
    done = refold("verify", "latest", "--json")
    assert done.code == 4
    assert json.loads(done.out)["ok"] is False
    assert refold("show", "latest").code == 4
    said = refold("verify", "latest").out
    assert said.startswith("DAMAGED: ")
    assert "are intact" not in said


def test_every_reader_of_a_run_without_an_anchored_head_warns(refold: Run, tmp_path: Path):
    refold("tune", *FILES, *LIMITS, "--seed-budget", 1)
    assert "no head is anchored" not in refold("show", "latest").err
    (head,) = [path for path in (tmp_path / ".refold" / "heads").iterdir() if path.is_file()]
    kept = head.read_bytes()
    for verb in ("show", "export", "resume"):
        head.unlink(missing_ok=True)
        assert "no head is anchored" in refold(verb, "latest").err, verb
    head.write_bytes(kept)


def test_an_out_dir_that_cannot_be_is_refused_before_the_search(refold: Run, tmp_path: Path):
    (tmp_path / "file").touch()
    done = refold("tune", *FILES, *LIMITS, "--out-dir", "file")
    assert done.code == 2
    assert done.err.startswith("refold: file: cannot be written")
    assert refold("runs", "--json").out.strip() == "[]"


def test_one_candidate_is_not_called_candidates(refold: Run):
    done = refold("tune", *FILES, *LIMITS, "--seed-budget", 1)
    assert "round         1 candidate from" in done.err


@pytest.mark.parametrize("verb", ["show", "export", "verify", "resume"])
def test_a_run_that_is_not_there_is_named(refold: Run, verb: str):
    done = refold(verb, "nothing-like-it")
    assert done.code == 2
    assert "nothing-like-it" in done.err


def test_the_store_is_where_the_option_or_the_environment_says(
    refold: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    refold("tune", *FILES, *LIMITS, "--store", "by-option")
    monkeypatch.setenv("REFOLD_STORE", "by-environment")
    refold("tune", *FILES, *LIMITS)
    assert (tmp_path / "by-option" / "runs").is_dir()
    assert (tmp_path / "by-environment" / "runs").is_dir()
    assert not (tmp_path / ".refold").exists()


def test_a_gemm_backend_asked_for_by_name_that_cannot_serve_the_gpu_is_exit_code_3(
    refold: Run, tmp_path: Path
):
    target = yaml.safe_load((tmp_path / "cluster.yaml").read_text())
    target["target_cluster"]["gpu_arch"] = "h100"
    target["optimization"]["hbm_capacity_gb"] = 80
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(target))
    done = refold("tune", *FILES, "--no-prefect", "--gemm-backend", "origami")
    assert done.code == 3
    assert "origami" in done.err


def test_what_the_session_run_found_is_what_the_command_finds(
    refold: Run, uninterrupted: Uninterrupted
):
    refold("tune", *FILES, *LIMITS, "--seed-budget", 24)
    shown = json.loads(refold("show", "latest", "--json").out)
    assert shown["incumbent"] == uninterrupted.state.incumbent


def test_a_pin_nothing_legal_can_have_is_refused_before_there_is_a_run(refold: Run, tmp_path: Path):
    write_inputs(tmp_path, optimization={"pinned": {"pp": 3}})
    done = refold("tune", *FILES, *LIMITS)
    assert done.code == 2
    assert "pinned.pp: 3 is not legal" in done.err
    assert not list((tmp_path / ".refold").glob("runs/*"))
