import json
import os
import shutil
from pathlib import Path

import pytest
import yaml

from schemas.errors import UserError
from schemas.recipe import Recipe
from schemas.workload import Workload
from storage import EventLog, State, write_exports
from storage.canonical import canonical
from storage.exports.files import write_file
from tests.storage.builders import RUN, Clock, normal_trial, started, write
from tests.storage.exports.runs import run_of
from tests.storage.workloads import workload

WORKLOAD = workload()
STATE = run_of(
    [
        ({}, {"tokens_per_s_per_gpu": 2900.0, "fits": False, "memory_per_gpu_gb": 271.1}),
        ({"mbs": 4}, {"code": "does_not_fit", "fits": False, "memory_per_gpu_gb": 300.0}),
        ({"fp8": "hybrid", "tp": 2}, {}),
        ({"mbs": 1}, {"tokens_per_s_per_gpu": 3000.0}),
    ]
)
UNFITTING = run_of([({}, {"fits": False, "memory_per_gpu_gb": 271.1})])


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def exported(folder: Path, state: State = STATE, of: Workload = WORKLOAD) -> dict[str, bytes]:
    write_exports(state, of, folder)
    return contents(folder)


def test_all_artefacts_are_written_and_named(tmp_path: Path) -> None:
    paths = write_exports(STATE, WORKLOAD, tmp_path)
    assert sorted(contents(tmp_path)) == [
        "recipe/exports.sh",
        "recipe/megatron_args.sh",
        "recipe/recipe.json",
        "recipe/workload.yaml",
        "scratchpad.txt",
        "summary.json",
        "trials.jsonl",
        "trials/000_tp1_pp4.yaml",
        "trials/001_tp1_pp4.yaml",
        "trials/002_tp2_pp4.yaml",
        "trials/003_tp1_pp4.yaml",
    ]
    assert sorted(str(p.relative_to(tmp_path)) for p in paths) == sorted(contents(tmp_path))
    assert os.access(tmp_path / "recipe" / "exports.sh", os.X_OK)


def test_p12_rewritten_or_deleted_they_come_back_byte_for_byte(tmp_path: Path) -> None:
    first = exported(tmp_path)
    assert exported(tmp_path) == first
    shutil.rmtree(tmp_path)
    assert exported(tmp_path) == first
    assert exported(tmp_path / "elsewhere") == first


def test_p12_they_come_back_from_the_log_alone(tmp_path: Path) -> None:
    """From the blobs of a run, whose JSON has its keys sorted, not from the workload in memory."""
    with EventLog.create(tmp_path / "store", RUN, clock=Clock()) as log:
        blob = log.put_blob(canonical(WORKLOAD.model_dump(mode="json")).encode())
        write(log, [[(started(workload_blob=blob), None, None)]])  # type: ignore[list-item]
        state = log.state()
        at_once = exported(tmp_path / "at_once", state)
    later = EventLog.open(tmp_path / "store", RUN)
    of = Workload.model_validate_json(later.get_blob(later.state().spec.workload_blob))
    assert exported(tmp_path / "later", later.state(), of) == at_once


def test_p12_each_file_says_as_of_which_event(tmp_path: Path) -> None:
    for name, data in exported(tmp_path).items():
        if name.endswith(".jsonl"):
            lines = [json.loads(line) for line in data.splitlines()]
            assert all(line["as_of_event"] == STATE.head_seq for line in lines)
        elif name.endswith(".json"):
            assert json.loads(data)["as_of_event"] == STATE.head_seq
        else:
            assert f"as of event {STATE.head_seq}".encode() in data, name


def test_unchanged_files_are_not_touched(tmp_path: Path) -> None:
    exported(tmp_path)
    for path in tmp_path.rglob("*"):
        os.utime(path, (1, 1))
    exported(tmp_path)
    assert {p.stat().st_mtime for p in tmp_path.rglob("*") if p.is_file()} == {1}


def test_files_of_an_earlier_run_go_and_a_users_own_stay(tmp_path: Path) -> None:
    exported(tmp_path)
    mine = {"trials/mine.yaml": b"# my own\n", "recipe/notes.txt": b"mine", "trials.png": b"png"}
    for name, data in mine.items():
        (tmp_path / name).write_bytes(data)
    after = exported(tmp_path, UNFITTING)
    assert mine.items() <= after.items()
    assert sorted(after.keys() - mine.keys()) == [
        "scratchpad.txt",
        "summary.json",
        "trials.jsonl",
        "trials/000_tp1_pp4.yaml",
    ]


def test_without_a_recipe_there_is_no_recipe_folder(tmp_path: Path) -> None:
    exported(tmp_path)
    exported(tmp_path, UNFITTING)
    assert not (tmp_path / "recipe").exists()


def test_trials_jsonl_has_the_references_keys_and_ours(tmp_path: Path) -> None:
    lines = [json.loads(line) for line in exported(tmp_path)["trials.jsonl"].splitlines()]
    assert list(lines[0])[:6] == ["idx", "timestamp", "config", "result", "source", "notes"]
    assert [line["idx"] for line in lines] == [0, 1, 2, 3]
    assert [line["status"] for line in lines] == ["scored", "rejected", "scored", "scored"]
    assert lines[1]["rejected"]["code"] == "does_not_fit"
    assert lines[1]["notes"] == ["a\nnote"]
    assert lines[2]["config"] == normal_trial(fp8="hybrid", tp=2).model_dump(mode="json")
    assert lines[2]["result"]["tokens_per_s_per_gpu"] == 3260.0
    assert lines[2]["source"] == "simulate"
    assert lines[2]["result"]["provenance"] == "analytic"


def test_the_summary_names_the_winner_and_the_spending(tmp_path: Path) -> None:
    summary = json.loads(exported(tmp_path)["summary.json"])
    assert summary["best"]["trial"] == 2
    assert summary["trials"] == {
        "candidates": 4,
        "evaluations": 3,
        "rejections": 1,
        "in_flight": 0,
    }
    assert summary["spent"]["perf_calls"] == 3
    assert summary["status"] == "finished"
    assert summary["rounds"][0]["trials"] == [0, 1, 2, 3]
    assert summary["workload_warnings"] == list(WORKLOAD.warnings)


def test_the_scratchpad_has_a_line_per_note(tmp_path: Path) -> None:
    lines = exported(tmp_path)["scratchpad.txt"].decode().splitlines()
    assert lines == [
        f"# run {RUN}, as of event {STATE.head_seq}",
        "[2026-03-04 05:06:19] planner: a note",
    ]


def test_the_recipe_carries_the_head_and_reads_back(tmp_path: Path) -> None:
    body = json.loads(exported(tmp_path)["recipe/recipe.json"])
    assert (body["head_seq"], body["head_hash"]) == (STATE.head_seq, STATE.head_hash)
    del body["as_of_event"]
    recipe = Recipe.model_validate(body)
    assert recipe.config == normal_trial(fp8="hybrid", tp=2)
    assert recipe.changed == {"tp": (1, 2), "fp8": ("none", "hybrid")}
    assert (recipe.runner_up_trial, recipe.best_seed_trial, recipe.baseline_fits) == (3, 2, False)
    assert recipe.headroom_gb == pytest.approx(259.2 - 182.8)
    assert any("convergence" in caveat for caveat in recipe.caveats)


def test_the_recipe_is_the_winners_overlay(tmp_path: Path) -> None:
    files = exported(tmp_path)
    assert yaml.safe_load(files["recipe/workload.yaml"]) == yaml.safe_load(
        files["trials/002_tp2_pp4.yaml"]
    )


def test_derived_settings_reach_every_form_of_the_recipe(tmp_path: Path) -> None:
    write_exports(STATE, WORKLOAD, tmp_path, derived=lambda trial: {"fp8_recipe": "tensorwise"})
    files = contents(tmp_path)
    assert b"fp8_recipe: tensorwise" in files["recipe/workload.yaml"]
    assert b"#   --fp8-recipe tensorwise" in files["recipe/exports.sh"]
    assert b"--fp8-recipe tensorwise" in files["recipe/megatron_args.sh"]
    assert b"tensorwise" not in files["trials/000_tp1_pp4.yaml"], "the baseline is the file's own"


def test_a_tag_never_leaves_the_folder(tmp_path: Path) -> None:
    entries = dict(STATE.trials)
    proposal = entries[3].proposed.model_copy(update={"tag": "../../etc/pass wd"})
    from dataclasses import replace

    entries[3] = replace(entries[3], proposed=proposal)
    files = exported(tmp_path, replace(STATE, trials=entries))
    assert "trials/003_etc-pass-wd.yaml" in files


def test_an_out_dir_that_cannot_be_written_is_the_users_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="cannot be written"):
        write_exports(STATE, WORKLOAD, tmp_path / "file" / "out")


def test_a_picture_is_put_in_place_whole_and_only_when_it_changes(tmp_path: Path) -> None:
    path = tmp_path / "made" / "trials.png"
    write_file(path, b"\x89PNG")
    first = path.stat().st_ino
    write_file(path, b"\x89PNG")
    assert path.stat().st_ino == first
    write_file(path, b"\x89PNG2")
    assert path.stat().st_ino != first
    assert [p.name for p in path.parent.iterdir()] == ["trials.png"]
