import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.errors import UserError, WorkloadError
from schemas.workload import Workload
from tasks.resolve import resolve_workload
from tasks.resolve.notices import used_keys


def run(tmp_path: Path, text: str, **env: str) -> Workload:
    path = tmp_path / "w.yaml"
    path.write_text(text)
    return resolve_workload(path, env=env)


def refusal(tmp_path: Path, text: str) -> str:
    with pytest.raises(WorkloadError) as caught:
        run(tmp_path, text)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(str(tmp_path), "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "/w.yaml: the file is empty"),
        ("- a\n", "/w.yaml: expected a mapping of keys to values at the top, found a list"),
        ("exp_name: x\n", "/w.yaml: modules: missing"),
        ("module: {}\n", "/w.yaml: modules: missing; did you mean modules instead of module?"),
        ("modules: []\n", "/w.yaml:1: modules: expected a mapping of module names"),
        ("modules: {}\n", "/w.yaml:1: modules: expected exactly one module whose name contains"),
        ("modules:\n  bench: {}\n", "found bench"),
        ("modules:\n  a_trainer: {}\n  b_trainer: {}\n", "found a_trainer, b_trainer"),
        ("modules:\n  trainer: x\n", "/w.yaml:2: modules.trainer: expected a mapping with"),
        ("modules:\n  trainer: {}\n", "/w.yaml:2: modules.trainer.model: missing"),
        ("modules:\n  trainer:\n    model: 3\n", "/w.yaml:3: modules.trainer.model: expected a"),
        (
            "modules:\n  trainer:\n    model: llama3_8B\n    overrides: [a]\n",
            "/w.yaml:4: modules.trainer.overrides: expected a mapping of settings",
        ),
        (
            "modules:\n  trainer:\n    framework: torchtitan\n    model: llama3_8B\n",
            "/w.yaml:3: modules.trainer.framework: framework 'torchtitan' is not one Refold reads",
        ),
        (
            "modules:\n  trainer:\n    config: [a]\n    model: llama3_8B\n",
            "/w.yaml:3: modules.trainer.config: expected a file name",
        ),
        (
            "modules:\n  trainer:\n    config: pre_trainr.yaml\n    model: llama3_8B\n",
            "there is no module preset 'pre_trainr.yaml'",
        ),
        ("a: ${GONE}\n", "/w.yaml:1: a: the environment variable GONE is not set"),
        ("a: [1\n", "/w.yaml:2: not YAML:"),
        ("a: 1\na: 2\n", "/w.yaml:2: the key 'a' is set twice (first on line 1)"),
    ],
)
def test_a_file_that_is_no_workload_is_one_line(tmp_path: Path, text: str, says: str) -> None:
    assert says in refusal(tmp_path, text)


def test_a_missing_workload_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"gone\.yaml: no such file$"):
        resolve_workload(tmp_path / "gone.yaml", env={})


def test_environment_reaches_every_part(tmp_path: Path) -> None:
    text = (
        "exp_name: ${EXP:job}\nmodules:\n  ${NAME:x}: 1\n  pre_trainer:\n"
        "    model: ${MODEL:llama3_8B}.yaml\n    overrides:\n      micro_batch_size: ${MBS:2}\n"
        "      pipeline_model_parallel_size: ${PP:1}\n"
    )
    plain = run(tmp_path, text)
    assert (plain.name, plain.architecture.name, plain.baseline.mbs) == ("job", "llama3_8B", 2)
    other = run(tmp_path, text, MODEL="llama2_7B", MBS="8", PP="4", EXP="other")
    assert (other.name, other.architecture.name, other.baseline.mbs) == ("other", "llama2_7B", 8)
    assert other.baseline.pp == 4
    assert other.document["modules"]["pre_trainer"]["overrides"]["micro_batch_size"] == 8


def test_foreign_keys_pass_through_untouched(tmp_path: Path) -> None:
    document = {
        "work_group": "amd",
        "platform": {"config": "azure.yaml", "nested": [1, {"deep": None}]},
        "modules": {
            "my_trainer": {
                "model": "llama3_8B.yaml",
                "overrides": {"lr": 1.0e-5, "my_own": {"a": [True, "x"]}, "tp_comm_overlap": True},
            }
        },
    }
    workload = run(tmp_path, yaml.safe_dump(document))
    assert workload.document == document
    assert workload.trainer == "my_trainer"
    assert workload.tp_comm_overlap
    assert json.loads(json.dumps(workload.document)) == document


def test_the_document_read_back_is_the_same_workload(resolve, tmp_path: Path) -> None:
    workload = resolve({"micro_batch_size": "${M:4}", "fp8": "hybrid"}, env={"M": "8"})
    again = tmp_path / "elsewhere" / "again.yaml"
    again.parent.mkdir()
    again.write_text(yaml.safe_dump(workload.document))
    copy = resolve_workload(again, env={})
    assert copy.baseline == workload.baseline
    assert copy.architecture == workload.architecture
    assert copy.precision == workload.precision


def test_the_document_still_finds_a_preset_that_lay_beside_the_workload(
    resolve, workload_file, tmp_path: Path
) -> None:
    folder = workload_file().parent
    (folder / "mine.yaml").write_text("extends: llama3_8B.yaml\nnum_layers: 3\n")
    (folder / "mod.yaml").write_text("seq_length: 99\n")
    workload = resolve(model="mine.yaml", config="mod.yaml")
    again = tmp_path / "elsewhere" / "again.yaml"
    again.parent.mkdir()
    again.write_text(yaml.safe_dump(workload.document))
    copy = resolve_workload(again, env={})
    assert (copy.architecture.num_layers, copy.seq_length) == (3, 99)


def test_names_of_shipped_and_searched_presets_are_kept(resolve, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: llama3_8B.yaml\n")
    workload = resolve(model="mine.yaml", model_path=[tmp_path])
    assert workload.document["modules"]["pre_trainer"]["model"] == "mine.yaml"
    assert resolve().document["modules"]["pre_trainer"]["config"] == "pre_trainer.yaml"


def test_secrets_never_enter_the_workload(resolve) -> None:
    secrets = {"wandb_api_key": "${WANDB_API_KEY}", "hf_token": "hf_abcdefghijkl", "seed": 1}
    workload = resolve(secrets, env={"WANDB_API_KEY": "sk-very-secret-indeed"})
    overrides = workload.document["modules"]["pre_trainer"]["overrides"]
    assert overrides == {"wandb_api_key": "${WANDB_API_KEY}", "seed": 1}
    assert "hf_token: looks like a secret" in workload.warnings[0]
    dumped = workload.model_dump_json()
    assert "very-secret" not in dumped
    assert "hf_abc" not in dumped


def test_a_secret_variable_inside_any_setting_stays_a_reference(resolve) -> None:
    path = {"train_data_path": "s3://me:${STORE_PASSWORD}@bucket/${SET:c4}"}
    workload = resolve(path, env={"STORE_PASSWORD": "hunter2"})
    assert workload.document["modules"]["pre_trainer"]["overrides"] == path
    assert "hunter2" not in workload.model_dump_json()


@pytest.mark.parametrize(
    ("overrides", "flash"),
    [
        ({}, True),
        ({"use_flash_attn": False}, False),
        ({"attention_backend": "unfused"}, False),
        ({"attention_backend": "fused"}, True),
    ],
)
def test_flash_attention(resolve, overrides, flash: bool) -> None:
    assert resolve(overrides).flash_attention is flash


@pytest.mark.parametrize(
    ("overrides", "grouped"),
    [
        ({"moe_grouped_gemm": False}, False),
        ({"moe_grouped_gemm": True}, True),
        ({"moe_grouped_gemm": False, "moe_use_legacy_grouped_gemm": True}, True),
        ({"moe_grouped_gemm": False, "use_turbo_grouped_gemm": True}, False),
        (
            {
                "moe_grouped_gemm": False,
                "use_turbo_grouped_gemm": True,
                "enable_primus_turbo": True,
            },
            True,
        ),
    ],
)
def test_grouped_gemm_in_its_three_spellings(resolve, overrides, grouped: bool) -> None:
    assert resolve(overrides, model="mixtral_8x7B_v0.1").moe_grouped_gemm is grouped


def test_the_rest_of_a_workload(resolve) -> None:
    workload = resolve(
        {
            "cp_comm_type": ["a2a", "a2a"],
            "moe_router_force_load_balancing": True,
            "moe_shared_expert_overlap": True,
            "make_vocab_size_divisible_by": 64,
            "gradient_accumulation_fusion": False,
        },
        model="deepseek_v3",
    )
    assert workload.cp_comm_type == "a2a"
    assert workload.moe_dispatcher == "alltoall"
    assert (workload.force_load_balancing, workload.moe_shared_expert_overlap) == (True, True)
    assert (workload.make_vocab_size_divisible_by, workload.framework) == (64, "megatron")
    assert not workload.gradient_accumulation_fusion


@pytest.mark.parametrize(
    ("overrides", "captured"),
    [
        ({"cuda_graph_scope": "full"}, ()),
        ({"enable_cuda_graph": True}, ("layer",)),
        ({"external_cuda_graph": True, "cuda_graph_scope": "attn"}, ("attn",)),
        (
            {"cuda_graph_impl": "transformer_engine", "cuda_graph_scope": ["moe_router", "attn"]},
            ("attn", "moe_router"),
        ),
        ({"cuda_graph_impl": "local", "cuda_graph_scope": "full_iteration"}, ("full_iteration",)),
    ],
)
def test_graphs_hold_what_megatron_captures(resolve, overrides, captured) -> None:
    assert resolve(overrides).cuda_graphs == captured


def test_an_unknown_scope_of_graphs_is_refused(resolve) -> None:
    with pytest.raises(WorkloadError, match="cuda_graph_scope: expected some of full, "):
        resolve({"enable_cuda_graph": True, "cuda_graph_scope": "half"})


def test_fine_tuning_has_its_own_module_preset(resolve) -> None:
    workload = resolve(config="sft_trainer.yaml")
    assert (workload.baseline.mbs, workload.baseline.gbs, workload.seq_length) == (1, 128, 2048)


VALUES: Any = st.sampled_from(
    [
        *(None, True, False, 0, 1, -1, 2, 8, 10**15, 1.5, 1e300, "", "null", "two", "4", "1e9"),
        *([], [1, 2], [0, 1, 1], ["a"], {}, {"a": 1}, [[1]], [128, 0], "${X:3}", "0,1,2"),
        *("full", "block", "selective", "bf16", "hybrid", "mxfp8", "gpt", "mamba", "a2a", "日本"),
        *("Et|tL", "E" + "t*8|" * 3 + "t*8,L", "([0]*16+[1]*16)", "([1]*999999)", "*" * 50),
    ]
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=120,
)
@given(
    st.dictionaries(st.sampled_from(sorted(used_keys())), VALUES, min_size=1, max_size=4),
    st.sampled_from(["llama3.1_8B", "deepseek_v2_lite", "gpt_oss_20B", "gpt3_1.7B"]),
)
def test_any_settings_resolve_or_are_refused_in_one_line(resolve, overrides, model: str) -> None:
    problem = ""
    try:
        resolve(overrides, model=model).model_dump_json()
    except UserError as refused:
        problem = str(refused)
    assert len(problem.splitlines()) <= 1
    assert len(problem) < 400


@pytest.mark.parametrize(
    "key",
    [
        "tensor_model_parallel_size",
        "use_torch_fsdp2",
        "optimizer",
        "pp_algorithm",
        "fp8",
        "recompute_layer_ids",
        "moe_layer_freq",
        "pipeline_model_parallel_layout",
        "cp_comm_type",
    ],
)
@pytest.mark.parametrize("model", ["llama3.1_8B.yaml", "mixtral_8x7B_v0.1.yaml"])
def test_a_value_out_of_a_variable_is_named_and_not_shown(
    resolve: Any, key: str, model: str
) -> None:
    base = {"pipeline_model_parallel_size": 4, "recompute_granularity": "full"}
    if key == "moe_layer_freq" and not model.startswith("mixtral"):
        return
    with pytest.raises(WorkloadError) as caught:
        resolve(base | {key: "${PLACE}"}, model, env={"PLACE": "Hunter2-of-mine"})
    assert "unter2" not in f"{caught.value} {caught.value.hint}"


def test_a_size_out_of_a_variable_names_the_variable(resolve: Any) -> None:
    with pytest.raises(WorkloadError, match=r"whole number, got the value of \$\{PRIMUS_TP\}$"):
        resolve({"tensor_model_parallel_size": "${PRIMUS_TP:1}"}, env={"PRIMUS_TP": "sk-SECRET"})
    with pytest.raises(WorkloadError, match=r"expected at most 1000000, got the value of"):
        resolve({"tensor_model_parallel_size": "${PRIMUS_TP}"}, env={"PRIMUS_TP": "12345678"})


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"main_grads_dtype": "abc"}, "main_grads_dtype: expected one of fp32, bf16, got 'abc'"),
        ({"exp_avg_dtype": "abc"}, "exp_avg_dtype: expected one of fp32, bf16, fp16, fp8, got"),
        ({"pp_algorithm": "abc"}, "pp_algorithm: pp_schedule 'abc' is not a schedule. There are:"),
        ({"recompute_num_layers": 10**9}, "recompute_num_layers: expected at most 10000, got"),
        ({"recompute_method": "abc"}, "recompute_method: expected one of block, uniform, got"),
        ({"moe_layer_freq": 10**29}, "moe_layer_freq: expected every how many layers"),
    ],
)
def test_junk_is_refused_where_nothing_reads_it_too(
    resolve: Any, overrides: dict[str, Any], says: str
) -> None:
    with pytest.raises(WorkloadError) as caught:
        resolve(overrides, "mixtral_8x7B_v0.1.yaml")
    assert says in str(caught.value)


def test_more_layers_than_the_model_has_are_warned_about(resolve: Any) -> None:
    full = {"recompute_granularity": "full", "recompute_method": "block"}
    many = resolve(
        full | {"recompute_num_layers": 33, "moe_layer_freq": 40}, "mixtral_8x7B_v0.1.yaml"
    )
    said = " ".join(many.warnings)
    assert "recompute_num_layers: 33 is more than the 32 layers of the model" in said
    assert "moe_layer_freq: 40 is more than the 32 layers of the model" in said


@pytest.mark.parametrize("name", ["a" * 300, "a" * 300 + ".yaml", "nul\0byte"])
def test_a_preset_name_no_file_can_have_is_a_missing_preset(resolve: Any, name: str) -> None:
    with pytest.raises(WorkloadError, match="there is no model preset"):
        resolve(model=name)


def test_what_extends_a_name_no_file_can_have_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(f"extends: [{'a' * 300}.yaml]\n")
    text = "modules:\n  pre_trainer:\n    framework: megatron\n    config: pre_trainer.yaml\n"
    assert "there is no model preset" in refusal(tmp_path, f"{text}    model: m.yaml\n")
