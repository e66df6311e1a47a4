"""From a trial and its workload to the shape that a layer's work is described with."""

from collections.abc import Hashable
from dataclasses import replace

from projection.memo import remember
from projection.parameters import padded_vocab
from projection.work.layer import LayerKind
from projection.work.shape import Dispatcher, GradAccumulation, WorkShape
from schemas.trial import NormalTrial
from schemas.workload import Workload

CURRENT_SCALING_RECIPES = frozenset({"tensorwise", "current"})
"""FP8 recipes that read a tensor for its maximum before casting it."""


class Shapes:
    """The shapes of one workload's trials, each built once for all trials that share it."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._known: dict[tuple[Hashable, ...], WorkShape] = {}

    def of(self, trial: NormalTrial, *, routed_load: float) -> WorkShape:
        """`work_shape` of `trial`: the same object for the same shape."""
        key = (
            trial.mbs,
            trial.tp,
            trial.cp,
            trial.ep,
            trial.etp,
            trial.fp8,
            trial.cross_entropy_loss_fusion,
            trial.use_turbo_deepep,
            trial.sync_free_stage,
            trial.target_ep_size,
            trial.use_torch_fsdp2,
            routed_load,
        )
        found = self._known.get(key)
        if found is None:
            built = work_shape(trial, self._workload, routed_load=routed_load)
            found = remember(self._known, key, built)
        return found


def work_shape(trial: NormalTrial, workload: Workload, *, routed_load: float) -> WorkShape:
    """What one microbatch of `trial` looks like on one GPU.

    `routed_load`: expert load of the busiest rank over the mean. Context parallelism `a2a+p2p` is
    described as its ring, which is what spans nodes.
    """
    fp8 = trial.fp8 != "none"
    recipe = "delayed" if trial.fp8 == "delayed" else workload.precision.fp8_recipe
    return WorkShape(
        micro_batch=trial.mbs,
        seq_length=workload.seq_length,
        padded_vocab=_vocabulary(trial, workload),
        tp=trial.tp,
        cp=trial.cp,
        ep=trial.ep,
        etp=trial.etp,
        sequence_parallel=workload.sequence_parallel and trial.tp > 1,
        linear_dtype="fp8" if fp8 else "bf16",
        fp8_amax_pass=fp8 and recipe in CURRENT_SCALING_RECIPES,
        flash_attention=workload.flash_attention,
        attention_dropout=workload.attention_dropout > 0,
        hidden_dropout=workload.hidden_dropout > 0,
        loss_fusion=trial.cross_entropy_loss_fusion,
        cp_comm="p2p" if workload.cp_comm_type == "a2a+p2p" else workload.cp_comm_type,
        tp_comm_overlap=workload.tp_comm_overlap,
        dispatcher=_dispatcher(trial, workload),
        dispatch_ranks=trial.target_ep_size or trial.ep,
        sync_free_stage=trial.sync_free_stage,
        grouped_gemm=workload.moe_grouped_gemm or trial.sync_free_stage >= 2,
        shared_expert_overlap=workload.moe_shared_expert_overlap,
        grad_accumulation=_grad_accumulation(trial, workload),
        routed_load=routed_load,
    )


def _vocabulary(trial: NormalTrial, workload: Workload) -> int:
    """The padded vocabulary: fixed by the file, or the model's padded for this tp."""
    if workload.padded_vocab_size is not None:
        return workload.padded_vocab_size
    return padded_vocab(
        workload.architecture.vocab_size, workload.make_vocab_size_divisible_by, trial.tp
    )


def _dispatcher(trial: NormalTrial, workload: Workload) -> Dispatcher:
    """How tokens reach their experts. Sync-free stage 2 and up brings DeepEP with it."""
    if trial.use_turbo_deepep or trial.sync_free_stage >= 2:
        return "deepep"
    return "allgather" if workload.moe_dispatcher == "allgather" else "alltoall"


def _grad_accumulation(trial: NormalTrial, workload: Workload) -> GradAccumulation:
    """How weight gradients reach the main gradient."""
    if trial.use_torch_fsdp2:
        return "sharded"
    return "fused" if workload.gradient_accumulation_fusion else "separate"


def relevant_shape(shape: WorkShape, kind: LayerKind) -> WorkShape:
    """`shape` with everything that layers of `kind` do not depend on set to one value.

    Two trials that differ in nothing a layer sees then share what was computed for it.
    """
    if kind.block != "mtp":
        ends = kind.block in ("embedding", "output")
        shape = replace(
            shape,
            padded_vocab=shape.padded_vocab if ends else 0,
            loss_fusion=shape.loss_fusion and kind.block == "output",
        )
    if kind.moe:
        return shape
    return replace(
        shape,
        ep=1,
        etp=1,
        dispatcher="alltoall",
        dispatch_ranks=1,
        sync_free_stage=0,
        grouped_gemm=True,
        shared_expert_overlap=False,
        routed_load=1.0,
    )
