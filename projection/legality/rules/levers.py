"""Recomputation, optimizer sharding, MoE communication and precision: which go together."""

from projection.legality.context import Context
from projection.legality.normal_form import RecomputeSetting
from projection.legality.rules.rule import Rule
from projection.legality.split import largest_stage
from schemas.trial import SPLIT_BACKWARD, NormalTrial


def recompute_split_backward(trial: NormalTrial, _: Context) -> str | None:
    """Primus asserts that nothing is recomputed where weight gradients run apart."""
    if trial.recompute_granularity == "none" or trial.pp_schedule not in SPLIT_BACKWARD:
        return None
    return (
        f"recompute {trial.recompute_granularity} with schedule {trial.pp_schedule}:"
        " the framework recomputes nothing where the backward pass is split"
    )


def recompute_exceeds_stage(trial: NormalTrial, context: Context) -> str | None:
    """A count of recomputed layers is per virtual stage; only a file's own may be larger."""
    return None if _is_the_files(trial, context.baseline) else stage_overflow(trial, context)


def stage_overflow(trial: NormalTrial, context: Context) -> str | None:
    """How many more layers are to be recomputed than a virtual stage has; None when not more."""
    if trial.recompute_granularity != "full" or trial.recompute_layer_ids:
        return None
    most = largest_stage(
        context.architecture.num_layers,
        trial.pp,
        trial.vpp,
        trial.layout,
        trial.first_stage_layers,
        trial.last_stage_layers,
    )
    if not most or trial.recompute_num_layers <= most:
        return None
    return (
        f"recompute_num_layers {trial.recompute_num_layers} is more than the {most} layers"
        f" of a virtual stage (pp {trial.pp}, vpp {trial.vpp})"
    )


def _is_the_files(trial: NormalTrial, base: NormalTrial) -> bool:
    same = RecomputeSetting.of(trial) == RecomputeSetting.of(base)
    return same and (trial.pp, trial.vpp) == (base.pp, base.vpp)


def fsdp2_with_distributed_optimizer(trial: NormalTrial, _: Context) -> str | None:
    """FSDP2 shards the optimizer already."""
    if not (trial.use_torch_fsdp2 and trial.use_distributed_optimizer):
        return None
    return "use_torch_fsdp2 and use_distributed_optimizer exclude each other"


def fsdp2_pp(trial: NormalTrial, _: Context) -> str | None:
    """Megatron: FSDP2 does not run with pipeline parallelism."""
    if not trial.use_torch_fsdp2 or trial.pp == 1:
        return None
    return f"use_torch_fsdp2 needs pp 1, pp is {trial.pp}"


def fsdp2_ep(trial: NormalTrial, _: Context) -> str | None:
    """Megatron: FSDP2 does not run with expert parallelism."""
    if not trial.use_torch_fsdp2 or trial.ep == 1:
        return None
    return f"use_torch_fsdp2 needs ep 1, ep is {trial.ep}"


def fsdp2_tied(trial: NormalTrial, context: Context) -> str | None:
    """Megatron: FSDP2 needs its own output weights."""
    if not trial.use_torch_fsdp2 or not context.architecture.tied_embeddings:
        return None
    return "use_torch_fsdp2 needs untied embeddings, this model ties them"


def fsdp2_fp16(trial: NormalTrial, context: Context) -> str | None:
    """Megatron: FSDP2 does not run in FP16."""
    if not trial.use_torch_fsdp2 or context.workload.precision.params_dtype != "fp16":
        return None
    return "use_torch_fsdp2 does not run with fp16 parameters"


def param_gather_optimizer(trial: NormalTrial, _: Context) -> str | None:
    """Megatron: only the distributed optimizer has parameters to gather."""
    if not trial.overlap_param_gather or trial.use_distributed_optimizer:
        return None
    return "overlap_param_gather needs use_distributed_optimizer, which is off"


def param_gather_grad_reduce(trial: NormalTrial, _: Context) -> str | None:
    """Megatron: parameters are gathered behind the overlapped gradient reduction."""
    if not trial.overlap_param_gather or trial.overlap_grad_reduce:
        return None
    return "overlap_param_gather needs overlap_grad_reduce, which is off"


def deepep_needs_moe(trial: NormalTrial, context: Context) -> str | None:
    """DeepEP exchanges tokens between experts."""
    if not trial.use_turbo_deepep or context.architecture.is_moe:
        return None
    return "use_turbo_deepep on a dense model: there are no experts to exchange tokens with"


def deepep_needs_group(trial: NormalTrial, context: Context) -> str | None:
    """Megatron: DeepEP needs more than one GPU in its etp · ep group."""
    if not trial.use_turbo_deepep or not context.architecture.is_moe or trial.ep * trial.etp > 1:
        return None
    return "use_turbo_deepep needs etp·ep > 1, here it is 1·1: there is no all-to-all"


def sync_free_needs_moe(trial: NormalTrial, context: Context) -> str | None:
    """Sync-free stages are about token dispatch."""
    if not trial.sync_free_stage or context.architecture.is_moe:
        return None
    return f"sync_free_stage {trial.sync_free_stage} on a dense model: it has no token dispatch"


def sync_free_contradicts_deepep(trial: NormalTrial, _: Context) -> str | None:
    """Sync-free stages 2 and 3 run on DeepEP."""
    if trial.sync_free_stage < 2 or trial.use_turbo_deepep:
        return None
    return f"sync_free_stage {trial.sync_free_stage} runs on DeepEP, use_turbo_deepep is false"


def target_ep_needs_moe(trial: NormalTrial, context: Context) -> str | None:
    """Only an MoE model has an all-to-all to price."""
    if trial.target_ep_size is None or context.architecture.is_moe:
        return None
    return f"target_ep_size {trial.target_ep_size} on a dense model: it has no all-to-all"


def fp8_unsupported(trial: NormalTrial, context: Context) -> str | None:
    """The GPU must have an FP8 matrix rate."""
    gpu = context.cluster.gpu
    if trial.fp8 == "none" or gpu.fp8_tflops is not None:
        return None
    return f"fp8 {trial.fp8} on {gpu.name}, which has no FP8 matrix units"


def fp8_delayed_mla(trial: NormalTrial, context: Context) -> str | None:
    """Multi-latent attention runs FP8 with the tensorwise recipe only."""
    if trial.fp8 != "delayed" or context.architecture.attention != "mla":
        return None
    return "fp8 delayed with multi-latent attention, which runs the tensorwise recipe: ask hybrid"


_RECOMPUTE = ("recompute_granularity", "recompute_method", "recompute_num_layers")

RULES = (
    Rule(
        "recompute_split_backward",
        recompute_split_backward,
        ("pp_schedule", "recompute_granularity"),
        elsewhere="warn",
    ),
    Rule(
        "recompute_exceeds_stage",
        recompute_exceeds_stage,
        ("pp", "vpp", *_RECOMPUTE),
        elsewhere="allow",
    ),
    Rule(
        "fsdp2_with_distributed_optimizer",
        fsdp2_with_distributed_optimizer,
        ("use_torch_fsdp2", "use_distributed_optimizer"),
    ),
    Rule("fsdp2_pp", fsdp2_pp, ("use_torch_fsdp2", "pp")),
    Rule("fsdp2_ep", fsdp2_ep, ("use_torch_fsdp2", "ep")),
    Rule("fsdp2_tied", fsdp2_tied, ("use_torch_fsdp2",)),
    Rule("fsdp2_fp16", fsdp2_fp16, ("use_torch_fsdp2",)),
    Rule(
        "param_gather_optimizer",
        param_gather_optimizer,
        ("overlap_param_gather", "use_distributed_optimizer"),
    ),
    Rule(
        "param_gather_grad_reduce",
        param_gather_grad_reduce,
        ("overlap_param_gather", "overlap_grad_reduce"),
    ),
    Rule("deepep_needs_moe", deepep_needs_moe, ("use_turbo_deepep",)),
    Rule(
        "deepep_needs_group",
        deepep_needs_group,
        ("use_turbo_deepep", "etp", "ep"),
        elsewhere="warn",
    ),
    Rule("sync_free_needs_moe", sync_free_needs_moe, ("sync_free_stage",)),
    Rule(
        "sync_free_contradicts_deepep",
        sync_free_contradicts_deepep,
        ("sync_free_stage", "use_turbo_deepep"),
    ),
    Rule("target_ep_needs_moe", target_ep_needs_moe, ("target_ep_size",)),
    Rule("fp8_unsupported", fp8_unsupported, ("fp8",)),
    Rule("fp8_delayed_mla", fp8_delayed_mla, ("fp8",)),
)
