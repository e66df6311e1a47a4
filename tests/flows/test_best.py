"""`refold best`: the best known recipe over all runs, or what is nearest to it."""

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from flows.best_view import age
from flows.invalidating import invalidate
from flows.requests import TuneRequest
from flows.tune import tune
from storage import EventLog, Store
from storage.layout import run_prefix
from tests.end_to_end.cutting import but_export
from tests.end_to_end.files import write_inputs
from tests.end_to_end.made_once import Uninterrupted
from tests.end_to_end.searches import request_in, searched
from tests.flows.inline import Ended, refold_inline

pytestmark = pytest.mark.whole

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Uninterrupted:
    """A dry search of six seeds; tests only read its store."""
    return searched(request_in(tmp_path_factory.mktemp("best"), mode="dry", seed_budget=6))


@pytest.fixture
def store(made: Uninterrupted, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made.store, tmp_path / "store"))


def files_in(folder: Path, **changes: Any) -> tuple[Path, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    return write_inputs(folder, **changes)


def asked(
    capsys: Capture, files: tuple[Path, Path], store: object, *more: object, mode: str = "dry"
) -> Ended:
    workload, cluster = files
    arguments = (workload, cluster, "--store", store, "--mode", mode, "--gemm-backend", "tile")
    done = refold_inline(capsys, "best", *arguments, *more)
    if "--json" not in more:
        paths = (str(workload), str(store))
        lines = [line for line in done.out.splitlines() if not any(p in line for p in paths)]
        assert all(len(line) <= 100 for line in lines)
    return done


def test_the_recipe_is_told_with_its_figures_and_where_it_comes_from(
    made: Uninterrupted, tmp_path: Path, capsys: Capture
):
    best = made.state.best
    assert best is not None
    evaluation = best.evaluation
    assert evaluation is not None
    done = asked(capsys, files_in(tmp_path), made.store)
    assert (done.code, done.err) == (0, "")
    out = " ".join(done.out.split())
    assert "best known for mixtral-pretrain on pod" in out
    assert f"speed {best.score:,.0f} tokens/s/GPU" in out
    memory = evaluation.memory_per_gpu_gb
    assert memory is not None
    assert f"{memory:,.1f} GB/GPU, {evaluation.cap_gb - memory:,.1f} GB below the cap of" in out
    assert "provenance synthetic (dry), memory regime config" in out
    assert f"from trial {best.number} ({best.proposed.tag}) of run {made.run_id}" in out
    assert f"by rule {best.proposed.rule}: {best.proposed.why}" in out
    assert f"projection {made.state.spec.projection_version}" in out
    assert f"behind it 1 run, {made.state.spent.perf_calls} scores" in out
    assert f"refold export {made.run_id} --store {made.store} --out-dir DIR" in out
    assert f"refold lineage {made.run_id} --store {made.store} --trial {best.number}" in out
    assert "fp8 none → hybrid" in out


def test_the_commands_it_names_work(
    made: Uninterrupted, store: Path, tmp_path: Path, capsys: Capture
):
    out = " ".join(asked(capsys, files_in(tmp_path), store).out.split())
    export = out.partition(" files ")[2].partition(" writes it as ")[0].split()
    named = out.partition(" writes it as ")[2].partition(",")[0]
    there = [str(tmp_path / "files") if word == "DIR" else word for word in export[1:]]
    assert refold_inline(capsys, *there).code == 0
    assert (tmp_path / "files" / named).is_file()
    assert refold_inline(capsys, *out.partition(" why ")[2].split()[1:]).code == 0


def test_json_has_all_of_it(made: Uninterrupted, tmp_path: Path, capsys: Capture):
    done = asked(capsys, files_in(tmp_path), made.store, "--json")
    found = json.loads(done.out)
    best = made.state.best
    assert best is not None
    assert done.code == 0
    assert (found["best"]["run_id"], found["best"]["trial"]) == (made.run_id, best.number)
    assert found["best"]["evaluation"]["tokens_per_s_per_gpu"] == best.score
    assert found["question"]["source"] == "dry"
    assert (found["runs"], found["scores"]) == (1, made.state.spent.perf_calls)
    assert (found["not_told"], found["passed_over"], found["nearest"]) == ([], [], [])


def test_an_unknown_store_is_answered_with_the_command_that_makes_one(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
):
    workload, cluster = files_in(tmp_path)
    done = asked(capsys, (workload, cluster), tmp_path / "nowhere")
    assert (done.code, done.err) == (1, "")
    assert "near" not in done.out
    command = " ".join(done.out.split()).partition("to know it ")[2].split()
    assert command[:2] == ["refold", "tune"]
    monkeypatch.chdir(tmp_path)
    quick = ("--seed-only", "--no-prefect", "--seed-budget", "3")
    assert refold_inline(capsys, *command[1:], *quick).code == 0
    assert asked(capsys, (workload, cluster), tmp_path / "nowhere").code == 0


@pytest.mark.parametrize(
    ("changes", "mode", "says"),
    [
        ({}, "full", "the same model, cluster, stack differs (theirs → ours): source: dry →"),
        ({"nodes": 8}, "dry", "the same model, stack differs (theirs → ours): cluster.num_nodes"),
        (
            {"overrides": {"seq_length": 4096}},
            "dry",
            "the same cluster, stack differs (theirs → ours): workload.seq_length: 8192 → 4096",
        ),
        (
            {"optimization": {"memory_safety_margin": 0.2}},
            "dry",
            "the same model, stack differs (theirs → ours): cluster.memory_safety_margin: 0.1 →",
        ),
    ],
)
def test_what_nobody_asked_is_answered_with_the_nearest_and_what_differs(
    made: Uninterrupted,
    tmp_path: Path,
    capsys: Capture,
    changes: dict[str, Any],
    mode: str,
    says: str,
):
    done = asked(capsys, files_in(tmp_path, **changes), made.store, mode=mode)
    assert done.code == 1
    out = " ".join(done.out.split())
    assert says in out
    best = made.state.best
    assert best is not None
    assert f"mixtral-pretrain on pod: {best.score:,.0f} tokens/s/GPU run {made.run_id}" in out


def test_the_nearest_share_most_then_differ_least(store: Path, tmp_path: Path, capsys: Capture):
    def tuned(name: str, mode: str = "dry", **changes: Any) -> str:
        workload, cluster = files_in(tmp_path / name, **changes)
        return tune(
            TuneRequest(
                workload=workload,
                target_cluster=cluster,
                store=str(store),
                out_dir=tmp_path / "out",
                mode=mode,  # type: ignore[arg-type]
                gemm_backend="tile",
                seed_budget=1,
                seed_only=True,
            ),
            stage=but_export,
        )

    (first,) = Store.at(store).run_ids()
    two_apart = tuned("two", nodes=8, optimization={"memory_safety_margin": 0.2})
    shorter = tuned("model", overrides={"seq_length": 4096})
    other_question = tuned("full", mode="memory-real")
    files = files_in(tmp_path / "asked", optimization={"memory_safety_margin": 0.3})
    found = json.loads(asked(capsys, files, store, "--json").out)["nearest"]
    assert [near["run_id"] for near in found] == [first, two_apart, other_question, shorter]
    assert [near["shared"] for near in found] == [["model", "stack"]] * 3 + [["stack"]]
    assert [d["path"] for d in found[1]["differences"]] == [
        "cluster.memory_safety_margin",
        "cluster.num_nodes",
    ]


def test_a_better_one_that_this_search_may_not_ask_for_is_mentioned(
    made: Uninterrupted, tmp_path: Path, capsys: Capture
):
    files = files_in(tmp_path, optimization={"axes": {"fp8": False}})
    done = asked(capsys, files, made.store)
    allowed = next(t for t in made.state.ranked() if t.proposed.config.fp8 == "none")
    better = made.state.best
    assert better is not None
    out = " ".join(done.out.split())
    assert done.code == 0
    assert f"from trial {allowed.number} ({allowed.proposed.tag})" in out
    assert f"not told {better.score:,.0f} tokens/s/GPU, trial {better.number} of" in out
    told = json.loads(asked(capsys, files, made.store, "--json").out)
    assert [other["trial"] for other in told["not_told"]] == [
        t.number for t in made.state.ranked() if t.proposed.config.fp8 != "none"
    ]
    assert all("fp8" in other["why"] for other in told["not_told"])


def test_where_nothing_known_is_allowed_that_is_said(
    made: Uninterrupted, tmp_path: Path, capsys: Capture
):
    files = files_in(tmp_path, optimization={"pinned": {"mbs": 4}})
    done = asked(capsys, files, made.store)
    assert done.code == 1
    out = " ".join(done.out.split())
    assert f"1 run, {made.state.spent.perf_calls} scores, and no recipe that may be told" in out
    assert "and 3 more: --json has them all" in out
    assert "pinned" in out


def test_the_baseline_is_told_as_the_file_s_own(
    made: Uninterrupted, store: Path, tmp_path: Path, capsys: Capture
):
    for trial in made.state.ranked():
        if trial.number != 0:
            invalidate(Store.at(store), made.run_id, trial.number, "wrong")
    done = asked(capsys, files_in(tmp_path), store)
    assert "changes nothing: the workload as its file says" in " ".join(done.out.split())
    assert done.code == 0


def test_a_damaged_run_is_passed_over_and_said(
    made: Uninterrupted, store: Path, tmp_path: Path, capsys: Capture
):
    again = tune(
        made.request.model_copy(update={"store": str(store), "recall": False}), stage=but_export
    )
    for path in (store / run_prefix(made.run_id) / "events").iterdir():
        path.write_bytes(path.read_bytes()[:-9])
    done = asked(capsys, files_in(tmp_path), store)
    assert done.code == 0
    assert f"of run {again}" in " ".join(done.out.split())
    assert f"warning: passed over: run {made.run_id}, event 0: segment" in done.err


def test_it_answers_from_an_object_store(s3_store: str, tmp_path: Path, capsys: Capture):
    files = files_in(tmp_path)
    request = TuneRequest(
        workload=files[0],
        target_cluster=files[1],
        store=s3_store,
        out_dir=tmp_path / "out",
        mode="dry",
        gemm_backend="tile",
        seed_budget=4,
        seed_only=True,
    )
    assert asked(capsys, files, s3_store).code == 1
    run_id = tune(request, stage=but_export)
    found = json.loads(asked(capsys, files, s3_store, "--json").out)
    assert found["best"]["run_id"] == run_id
    state = EventLog.open(
        Store.locate(s3_store, os.environ), tune(request, stage=but_export)
    ).state()
    assert state.recalled is not None
    assert (state.recalled.run, state.recalled.trial) == (run_id, found["best"]["trial"])


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-5, "just now"),
        (59, "just now"),
        (60, "a minute ago"),
        (150, "2 minutes ago"),
        (7199, "119 minutes ago"),
        (7200, "2 hours ago"),
        (3 * 86400 + 5, "3 days ago"),
    ],
)
def test_ages_are_in_the_largest_unit_of_which_there_are_two(seconds: int, words: str):
    now = datetime(2026, 3, 4, tzinfo=UTC)
    assert age(now - timedelta(seconds=seconds), now) == words
