"""Why a knob moves no number of a trial: a stable code per knob.

A bare knob name means neither memory nor time moves; `<knob>.memory` or `<knob>.time` that only
this one does not.
"""

from collections.abc import Sequence

from projection.degrees import Degrees
from projection.work.chunk import ChunkPlan
from schemas.architecture import Architecture
from schemas.trial import NormalTrial
from schemas.workload import Workload

EXPERT_KNOBS = ("ep", "etp", "use_turbo_deepep", "sync_free_stage", "target_ep_size")


def zero_delta_reasons(
    trial: NormalTrial,
    degrees: Degrees,
    workload: Workload,
    *,
    output_is_heaviest: bool,
) -> dict[str, str]:
    """Knob → code for every knob of `trial` that can be changed without effect here.

    `output_is_heaviest`: whether the rank that decides the memory holds the output head.
    """
    return {
        **_batch(trial, degrees, output_is_heaviest=output_is_heaviest),
        **_experts(trial, workload),
        **_pipeline(trial),
        **_data_parallel(trial, degrees),
        **_recompute(trial),
    }


def _batch(trial: NormalTrial, degrees: Degrees, *, output_is_heaviest: bool) -> dict[str, str]:
    """The global batch and the loss."""
    reasons: dict[str, str] = {}
    if degrees.num_microbatches >= 2 * trial.pp:
        reasons["gbs.memory"] = "in_flight_saturates"
    if not output_is_heaviest:
        reasons["cross_entropy_loss_fusion.memory"] = "output_rank_is_not_heaviest"
    return reasons


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


def _recompute(trial: NormalTrial) -> dict[str, str]:
    """Knobs of activation recomputation."""
    reasons: dict[str, str] = {}
    if trial.recompute_granularity != "full":
        reasons["recompute_num_layers"] = "recompute_is_not_full"
        reasons["recompute_method"] = "recompute_is_not_full"
    elif trial.recompute_layer_ids:
        reasons["recompute_num_layers"] = "layer_ids_decide"
    return reasons


def idle_recompute(
    trial: NormalTrial, architecture: Architecture, plans: Sequence[Sequence[ChunkPlan]]
) -> tuple[str, ...]:
    """Recomputation that frees nothing: no layer is recomputed, or a module this model has not."""
    if trial.recompute_granularity == "full":
        if any(plan.kept_inputs for row in plans for plan in row):
            return ()
        what = "layer ids" if trial.recompute_layer_ids else "0 layers"
        return (f"full recomputation of {what} recomputes no layer, so it frees nothing",)
    if trial.recompute_granularity != "selective":
        return ()
    latent = architecture.attention == "mla"
    has = {
        "moe_act": architecture.is_moe,
        "moe": architecture.is_moe,
        "shared_experts": architecture.is_moe and bool(architecture.shared_expert_hidden_size),
        "mla_up_proj": latent,
        "mlp": not all(architecture.is_moe_layer(i) for i in range(architecture.num_layers)),
    }
    idle = [name for name in trial.recompute_modules if not has.get(name, True)]
    return tuple(
        f"recomputing {name} frees nothing: {architecture.name} has no such module" for name in idle
    )


def trial_warnings(trial: NormalTrial, workload: Workload) -> tuple[str, ...]:
    """What a person should know of this trial's numbers: levers that do next to nothing."""
    warnings = []
    modules = trial.recompute_modules or ("core_attn",)
    core_only = trial.recompute_granularity == "selective" and modules == ("core_attn",)
    if core_only and workload.flash_attention:
        warnings.append(
            "recomputing core attention frees only its log-sum-exp: flash attention keeps no scores"
        )
    if trial.recompute_granularity != "none" and trial.splits_backward:
        warnings.append(
            f"{trial.pp_schedule} splits the backward pass; Primus refuses it with recomputation"
        )
    return tuple(warnings)
