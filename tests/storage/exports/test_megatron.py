import subprocess
from pathlib import Path

import pytest

from storage.exports.best import recipe_of
from storage.exports.megatron import megatron_arguments, without_argument
from storage.exports.recipe_files import recipe_files
from tests.storage.builders import normal_trial
from tests.storage.exports.runs import run_with
from tests.storage.workloads import workload

WORKLOAD = workload()


def flat(**changes: object) -> list[str]:
    arguments = megatron_arguments(normal_trial(**changes), WORKLOAD)
    return [" ".join(argument) for argument in arguments]


@pytest.mark.parametrize(
    ("changes", "present"),
    [
        ({"tp": 2}, ["--tensor-model-parallel-size 2", "--sequence-parallel"]),
        (
            {"ep": 4, "etp": 2},
            ["--expert-model-parallel-size 4", "--expert-tensor-parallel-size 2"],
        ),
        ({"vpp": 2}, ["--num-virtual-stages-per-pipeline-rank 2"]),
        ({"layout": "Et|t,L", "vpp": 2}, ["--pipeline-model-parallel-layout Et|t,L"]),
        ({"first_stage_layers": 11}, ["--decoder-first-pipeline-num-layers 11"]),
        (
            {
                "recompute_granularity": "full",
                "recompute_method": "uniform",
                "recompute_num_layers": 1,
            },
            [
                "--recompute-granularity full",
                "--recompute-method uniform",
                "--recompute-num-layers 1",
            ],
        ),
        (
            {"recompute_granularity": "selective", "recompute_modules": ("core_attn", "moe")},
            ["--recompute-granularity selective", "--recompute-modules core_attn moe"],
        ),
        ({"fp8": "e4m3"}, ["--fp8-format e4m3", "--fp8-recipe delayed"]),
        ({"fp8": "delayed"}, ["--fp8-format hybrid", "--fp8-recipe delayed"]),
        ({"use_turbo_deepep": True}, ["--moe-enable-deepep", "--moe-token-dispatcher-type flex"]),
        ({"use_torch_fsdp2": True}, ["--use-torch-fsdp2"]),
        ({"mbs": 4, "gbs": 256}, ["--micro-batch-size 4", "--global-batch-size 256"]),
    ],
)
def test_a_knob_is_an_argument(changes: dict[str, object], present: list[str]) -> None:
    assert set(present) <= set(flat(**changes))


def test_what_is_off_is_absent() -> None:
    off = flat(
        overlap_grad_reduce=False,
        overlap_param_gather=False,
        use_distributed_optimizer=False,
        cross_entropy_loss_fusion=False,
    )
    assert off == [
        "--tensor-model-parallel-size 1",
        "--pipeline-model-parallel-size 4",
        "--context-parallel-size 1",
        "--expert-model-parallel-size 8",
        "--expert-tensor-parallel-size 1",
        "--micro-batch-size 2",
        "--global-batch-size 128",
    ]


def test_a_layout_excludes_the_other_spelling_of_chunks() -> None:
    assert not [a for a in flat(layout="Et|t,L", vpp=2) if "virtual" in a]


def test_what_megatron_has_no_argument_for_is_said() -> None:
    trial = normal_trial(
        pp_schedule="zbv-greedy-min", sync_free_stage=3, recompute_layer_ids=(0, 3)
    )
    lines = without_argument(trial)
    assert len(lines) == 3
    assert "v-min" in lines[0]
    assert "stage 3" in lines[1]
    assert "0,3" in lines[2]
    assert without_argument(normal_trial(pp_schedule="interleaved", vpp=2)) == []


def test_the_script_sources_to_the_arguments(tmp_path: Path) -> None:
    layout = "Et*3|(tt|)*2t*3,L"
    state = run_with({"layout": layout, "vpp": 2, "recompute_modules": ()})
    recipe = recipe_of(state, WORKLOAD)
    assert recipe is not None
    script = tmp_path / "megatron_args.sh"
    script.write_text(recipe_files(recipe, WORKLOAD, None)["megatron_args.sh"])
    sourced = subprocess.run(
        ["bash", "-c", f'source {script}; printf "%s\\n" "${{MEGATRON_ARGS[@]}}"'],
        capture_output=True,
        text=True,
        check=True,
    )
    expected = [word for words in megatron_arguments(recipe.config, WORKLOAD) for word in words]
    assert sourced.stdout.splitlines() == expected
    assert layout in expected
