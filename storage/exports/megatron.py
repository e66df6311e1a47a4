"""A trial as Megatron-LM command-line arguments (names of megatron/training/arguments.py)."""

from collections.abc import Mapping
from typing import Any

from schemas.trial import PP_ALGORITHM, NormalTrial
from schemas.workload import Workload
from storage.exports.primus import MEGATRON_SCHEDULES


def megatron_arguments(
    trial: NormalTrial, workload: Workload, derived: Mapping[str, Any] | None = None
) -> list[list[str]]:
    """The arguments for every searched knob, one list per argument with its values."""
    arguments = [
        *_degrees(trial, workload),
        *_pipeline(trial),
        *_recompute(trial),
        *_fp8(trial, workload, derived or {}),
        ["--micro-batch-size", str(trial.mbs)],
        ["--global-batch-size", str(trial.gbs)],
    ]
    switches = {
        "--sequence-parallel": workload.sequence_parallel and trial.tp > 1,
        "--use-distributed-optimizer": trial.use_distributed_optimizer,
        "--use-torch-fsdp2": trial.use_torch_fsdp2,
        "--overlap-grad-reduce": trial.overlap_grad_reduce,
        "--overlap-param-gather": trial.overlap_param_gather,
        "--cross-entropy-loss-fusion": trial.cross_entropy_loss_fusion,
    }
    arguments += [[switch] for switch, on in switches.items() if on]
    if trial.use_turbo_deepep:
        arguments += [["--moe-token-dispatcher-type", "flex"], ["--moe-enable-deepep"]]
    return arguments


def without_argument(trial: NormalTrial) -> list[str]:
    """What of `trial` Megatron-LM has no argument for, one line each."""
    lines = []
    if trial.pp > 1 and trial.pp_schedule not in MEGATRON_SCHEDULES:
        name = PP_ALGORITHM[trial.pp_schedule]
        lines.append(f"pipeline schedule {name}: Primus only (patch_primus_pipeline, pp_algorithm)")
    if trial.sync_free_stage:
        lines.append(
            f"sync-free MoE stage {trial.sync_free_stage}: Primus only (turbo_sync_free_moe_stage)"
        )
    if trial.recompute_layer_ids:
        ids = ",".join(map(str, trial.recompute_layer_ids))
        lines.append(f"recomputation of layers {ids}: Primus only (recompute_layer_ids)")
    return lines


def _degrees(trial: NormalTrial, workload: Workload) -> list[list[str]]:
    degrees = [
        ["--tensor-model-parallel-size", str(trial.tp)],
        ["--pipeline-model-parallel-size", str(trial.pp)],
        ["--context-parallel-size", str(trial.cp)],
    ]
    if workload.architecture.is_moe:
        degrees += [
            ["--expert-model-parallel-size", str(trial.ep)],
            ["--expert-tensor-parallel-size", str(trial.etp)],
        ]
    return degrees


def _pipeline(trial: NormalTrial) -> list[list[str]]:
    arguments = []
    if trial.layout is not None:
        arguments.append(["--pipeline-model-parallel-layout", trial.layout])
    elif trial.vpp > 1:
        arguments.append(["--num-virtual-stages-per-pipeline-rank", str(trial.vpp)])
    for key, layers in (
        ("--decoder-first-pipeline-num-layers", trial.first_stage_layers),
        ("--decoder-last-pipeline-num-layers", trial.last_stage_layers),
    ):
        if layers is not None:
            arguments.append([key, str(layers)])
    return arguments


def _recompute(trial: NormalTrial) -> list[list[str]]:
    if trial.recompute_granularity == "none" or trial.recompute_layer_ids:
        return []
    arguments = [["--recompute-granularity", trial.recompute_granularity]]
    if trial.recompute_granularity == "full" and trial.recompute_method is not None:
        arguments += [
            ["--recompute-method", trial.recompute_method],
            ["--recompute-num-layers", str(trial.recompute_num_layers)],
        ]
    if trial.recompute_modules:
        arguments.append(["--recompute-modules", *trial.recompute_modules])
    return arguments


def _fp8(trial: NormalTrial, workload: Workload, derived: Mapping[str, Any]) -> list[list[str]]:
    """Format and recipe; `delayed` is the hybrid format with the recipe of that name."""
    if trial.fp8 == "none":
        return []
    delayed = trial.fp8 == "delayed"
    recipe = derived.get("fp8_recipe", workload.precision.fp8_recipe)
    return [
        ["--fp8-format", "hybrid" if delayed else trial.fp8],
        ["--fp8-recipe", "delayed" if delayed else str(recipe)],
    ]
