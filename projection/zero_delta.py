"""Why a knob moves no number of a trial: a stable code per knob.

A bare knob name means neither memory nor time moves; `<knob>.memory` or `<knob>.time` that only
this one does not.
"""

from projection.degrees import Degrees
from schemas.cluster import Cluster
from schemas.trial import NormalTrial
from schemas.workload import Workload

EXPERT_KNOBS = ("ep", "etp", "use_turbo_deepep", "sync_free_stage", "target_ep_size")


def zero_delta_reasons(
    trial: NormalTrial, degrees: Degrees, workload: Workload, cluster: Cluster
) -> dict[str, str]:
    """Knob → code for every knob of `trial` that can be changed without effect here."""
    return {
        **_experts(trial, workload),
        **_pipeline(trial),
        **_data_parallel(trial, degrees),
        **_recompute(trial, workload),
        **_precision(cluster),
    }


def _experts(trial: NormalTrial, workload: Workload) -> dict[str, str]:
    """Knobs of expert parallelism."""
    if not workload.architecture.is_moe:
        return dict.fromkeys(EXPERT_KNOBS, "dense_model")
    reasons = {"target_ep_size.memory": "models_communication_only"}
    if trial.ep == 1:
        reasons["use_turbo_deepep"] = "ep_group_is_one"
    if trial.sync_free_stage >= 2:
        reasons["use_turbo_deepep"] = "implied_by_sync_free"
    if trial.sync_free_stage == 0:
        reasons["sync_free_stage.memory"] = "stage_1_fuses_kernels_only"
    return reasons


def _pipeline(trial: NormalTrial) -> dict[str, str]:
    """Knobs of the pipeline."""
    if trial.pp == 1:
        return dict.fromkeys(("vpp", "pp_schedule", "enable_zero_bubble"), "no_pipeline")
    if trial.vpp != 1:
        return {"enable_zero_bubble": "needs_vpp_1"}
    if trial.splits_backward:
        return {"enable_zero_bubble": "schedule_is_explicit"}
    return {}


def _data_parallel(trial: NormalTrial, degrees: Degrees) -> dict[str, str]:
    """Knobs of data parallelism and its overlap."""
    reasons = {
        "overlap_grad_reduce.memory": "schedules_communication_only",
        "overlap_param_gather.memory": "schedules_communication_only",
    }
    knobs = ("overlap_grad_reduce", "overlap_param_gather", "use_distributed_optimizer")
    replicas = degrees.dp * trial.cp * degrees.edp
    if replicas == 1:
        return dict.fromkeys((*knobs, "use_torch_fsdp2"), "single_data_parallel_rank")
    if trial.use_torch_fsdp2:
        return reasons | dict.fromkeys(knobs, "fsdp2_shards_and_reduces_per_layer")
    if not trial.use_distributed_optimizer:
        reasons["overlap_param_gather"] = "no_distributed_optimizer"
    return reasons


def _recompute(trial: NormalTrial, workload: Workload) -> dict[str, str]:
    """Knobs of activation recomputation."""
    reasons: dict[str, str] = {}
    if trial.recompute_granularity != "full":
        reasons["recompute_num_layers"] = "recompute_is_not_full"
        reasons["recompute_method"] = "recompute_is_not_full"
    elif trial.recompute_layer_ids:
        reasons["recompute_num_layers"] = "layer_ids_decide"
    modules = trial.recompute_modules or ("core_attn",)
    core_only = trial.recompute_granularity == "selective" and modules == ("core_attn",)
    if core_only and workload.flash_attention:
        reasons["recompute_granularity.memory"] = "flash_attention_saves_no_scores"
    return reasons


def _precision(cluster: Cluster) -> dict[str, str]:
    """FP8 on a GPU that has no FP8 matrix units."""
    if cluster.gpu.fp8_tflops is None:
        return {"fp8.time": "gpu_has_no_fp8"}
    return {}
