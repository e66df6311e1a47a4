import os
from pathlib import Path

import pytest

from schemas.errors import WorkloadError
from schemas.workload import Workload
from tasks.resolve import resolve_workload

SMALL = (
    "num_layers: 4\nhidden_size: 64\nnum_attention_heads: 4\nvocab_size: 100\n"
    "position_embedding_type: rope\n"
)


@pytest.fixture
def job(tmp_path: Path) -> Path:
    folder = tmp_path / "job"
    folder.mkdir()
    return folder


def workload(job: Path, body: str = "", model: str = "m.yaml", top: str = "") -> Path:
    path = job / "w.yaml"
    path.write_text(f"{top}modules:\n  pre_trainer:\n    model: {model}\n{body}")
    return path


def run(path: Path, *model_path: Path, **env: str) -> Workload:
    return resolve_workload(path, model_path=model_path, env=env)


def layers(path: Path, *model_path: Path, **env: str) -> int:
    return run(path, *model_path, **env).architecture.num_layers


def test_later_entries_win_and_the_file_itself_wins(job: Path) -> None:
    (job / "low.yaml").write_text(SMALL + "num_experts: 8\nmoe_router_topk: 4\n")
    (job / "high.yaml").write_text("num_layers: 6\nmoe_router_topk: 3\n")
    (job / "m.yaml").write_text("extends: [low.yaml, high.yaml]\nmoe_router_topk: 2\n")
    a = run(workload(job)).architecture
    assert (a.num_experts, a.num_layers, a.moe_router_topk) == (8, 6, 2)


@pytest.mark.parametrize("keyword", ["extends", "bases"])
@pytest.mark.parametrize("one", ["sub/base.yaml", "[sub/base.yaml]"])
def test_a_chain_is_followed_from_each_files_own_folder(job: Path, keyword: str, one: str) -> None:
    (job / "sub").mkdir()
    (job / "sub" / "base.yaml").write_text("extends: ../root.yaml\nnum_layers: 5\n")
    (job / "root.yaml").write_text(SMALL)
    (job / "m.yaml").write_text(f"{keyword}: {one}\n")
    assert layers(workload(job)) == 5


def test_a_base_reached_twice_is_no_cycle(job: Path) -> None:
    (job / "root.yaml").write_text(SMALL)
    (job / "a.yaml").write_text("extends: root.yaml\nnum_layers: 5\n")
    (job / "b.yaml").write_text("extends: root.yaml\n")
    (job / "m.yaml").write_text("extends: [a.yaml, b.yaml]\n")
    assert layers(workload(job)) == 4


def test_a_cycle_prints_the_chain(job: Path) -> None:
    (job / "m.yaml").write_text("extends: a.yaml\n")
    (job / "a.yaml").write_text("extends: b.yaml\n")
    (job / "b.yaml").write_text("extends: [m.yaml]\n")
    with pytest.raises(WorkloadError) as caught:
        run(workload(job))
    assert str(caught.value) == ("extends goes in a circle: m.yaml → a.yaml → b.yaml → m.yaml")


def test_a_missing_base_prints_the_chain_and_its_place(job: Path) -> None:
    (job / "m.yaml").write_text("extends: a.yaml\n")
    (job / "a.yaml").write_text("num_layers: 4\nextends: lama3_base.yaml\n")
    with pytest.raises(WorkloadError) as caught:
        run(workload(job))
    message = str(caught.value)
    assert message.startswith(f"{job / 'a.yaml'}:2: extends: there is no model preset")
    assert "did you mean 'llama3_base.yaml'?" in message
    assert message.endswith("(extends: m.yaml → a.yaml → lama3_base.yaml)")


def test_an_endless_chain_of_distinct_files_ends(job: Path) -> None:
    for i in range(40):
        (job / f"m{i}.yaml").write_text(f"extends: m{i + 1}.yaml\n")
    with pytest.raises(WorkloadError, match=r"more than 32 files deep: m0\.yaml → m1\.yaml"):
        run(workload(job, model="m0.yaml"))


@pytest.mark.parametrize("extends", ["3", "{a: 1}", "[1]", "['']"])
def test_extends_names_files(job: Path, extends: str) -> None:
    (job / "m.yaml").write_text(f"extends: {extends}\n{SMALL}")
    with pytest.raises(WorkloadError, match=r"m\.yaml:1: extends: expected a file name"):
        run(workload(job))


def test_a_preset_of_the_users_may_extend_a_shipped_one(job: Path) -> None:
    (job / "m.yaml").write_text("extends: llama3_8B.yaml\nnum_layers: 7\n")
    a = run(workload(job)).architecture
    assert (a.num_layers, a.hidden_size, a.name) == (7, 4096, "m")


def test_the_workload_itself_may_extend_another(job: Path) -> None:
    (job / "m.yaml").write_text(SMALL)
    (job / "common.yaml").write_text(
        "exp_name: common\nmodules:\n  pre_trainer:\n    overrides:\n"
        "      micro_batch_size: 4\n      seq_length: 512\n"
    )
    body = "    overrides:\n      seq_length: 256\n"
    resolved = run(workload(job, body, top="extends: common.yaml\n"))
    assert (resolved.baseline.mbs, resolved.seq_length, resolved.name) == (4, 256, "common")
    assert "extends" not in resolved.document


def test_presets_are_taken_from_the_nearest_place(job: Path, tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    path = workload(job, model="llama3_8B.yaml")
    assert layers(path) == 32
    for number, folder in enumerate((third, second, first, job), start=1):
        folder.mkdir(exist_ok=True)
        (folder / "llama3_8B.yaml").write_text(SMALL.replace("4\n", f"{number}\n", 1))
        where = [place for place in (first, second) if place.is_dir()]
        env = {"REFOLD_MODEL_PATH": os.pathsep.join(["", str(third)])}
        assert layers(path, *where, **env) == number


def test_a_model_path_may_be_the_folder_above_models_and_modules(job: Path, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "modules").mkdir()
    (tmp_path / "models" / "m.yaml").write_text(SMALL)
    (tmp_path / "modules" / "mine.yaml").write_text("seq_length: 77\n")
    resolved = run(workload(job, "    config: mine.yaml\n"), tmp_path)
    assert resolved.seq_length == 77
    assert str(tmp_path / "models" / "m.yaml") in resolved.files


def test_a_model_path_that_is_not_there_is_an_error(job: Path, tmp_path: Path) -> None:
    (job / "m.yaml").write_text(SMALL)
    with pytest.raises(WorkloadError, match=r"--model-path: .*gone: no such folder"):
        run(workload(job), tmp_path / "gone")
    with pytest.raises(WorkloadError, match=r"REFOLD_MODEL_PATH: .*gone: no such folder"):
        run(workload(job), REFOLD_MODEL_PATH=str(tmp_path / "gone"))


def test_a_workload_named_after_its_model_is_not_its_own_preset(job: Path) -> None:
    path = job / "llama3_8B.yaml"
    path.write_text("modules:\n  pre_trainer:\n    model: llama3_8B.yaml\n")
    other = job / "llama3_70B.yaml"
    other.write_text("modules:\n  pre_trainer:\n    model: llama3_8B.yaml\n")
    assert layers(path) == 32
    assert layers(other) == 32


@pytest.mark.parametrize("model", ["llama3_8B", "llama3_8B.yaml"])
def test_the_suffix_may_be_left_out(job: Path, model: str) -> None:
    assert layers(workload(job, model=model)) == 32


def test_an_unknown_model_gets_the_nearest_name(job: Path) -> None:
    with pytest.raises(WorkloadError) as caught:
        run(workload(job, model="llama31_8B.yaml"))
    assert str(caught.value).startswith(f"{job / 'w.yaml'}:3: modules.pre_trainer.model: there is")
    assert "did you mean 'llama3.1_8B.yaml'?" in str(caught.value)


def test_a_module_wins_over_a_model_where_it_says_something(job: Path) -> None:
    (job / "m.yaml").write_text(SMALL + "seq_length: 333\nfp8_recipe: tensorwise\noptimizer: sgd\n")
    (job / "mod.yaml").write_text("seq_length: 444\nfp8_recipe: null\n")
    resolved = run(workload(job, "    config: mod.yaml\n"))
    assert resolved.seq_length == 444
    assert resolved.precision.fp8_recipe == "tensorwise"
    assert resolved.precision.optimizer == "sgd"


def test_silence_of_a_module_leaves_the_frameworks_default_below_the_model(job: Path) -> None:
    (job / "m.yaml").write_text(SMALL + "global_batch_size: 48\n")
    (job / "mod.yaml").write_text("lr: 1.0e-5\n")
    resolved = run(workload(job, "    config: mod.yaml\n"))
    assert (resolved.baseline.gbs, resolved.baseline.mbs, resolved.seq_length) == (48, 2, 1024)


def test_overrides_win_over_all_and_their_null_unsets(job: Path) -> None:
    (job / "m.yaml").write_text(SMALL + "num_experts: 8\nmoe_shared_expert_intermediate_size: 9\n")
    body = "    overrides:\n      moe_shared_expert_intermediate_size: null\n      num_layers: 3\n"
    a = run(workload(job, body)).architecture
    assert (a.shared_expert_hidden_size, a.num_layers) == (None, 3)


def test_every_file_read_is_recorded_with_its_hash(job: Path) -> None:
    (job / "m.yaml").write_text("extends: llama3_8B.yaml\n")
    files = run(workload(job)).files
    assert {str(job / "w.yaml"), str(job / "m.yaml"), "refold:models/llama3_8B.yaml"} <= set(files)
    assert "refold:modules/trainer_base.yaml" in files
    assert all(len(digest) == 64 for digest in files.values())


def test_variables_are_resolved_in_presets_too(job: Path) -> None:
    (job / "m.yaml").write_text(SMALL.replace("4", "${LAYERS:4}", 1))
    assert layers(workload(job)) == 4
    assert layers(workload(job), LAYERS="6") == 6
    assert layers(workload(job, model="${MODEL:m}.yaml")) == 4
