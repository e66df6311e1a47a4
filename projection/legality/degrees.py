"""Sizes that follow from a trial and the number of GPUs: data parallelism and microbatches.

Parallel folding, as Megatron builds it: over the same GPUs of one pipeline stage, attention is laid
out as tp · cp · dp and the experts as etp · ep · edp. The batch is split over dp.
"""

from schemas.trial import NormalTrial


def attention_replica(trial: NormalTrial) -> int:
    """GPUs one copy of the dense part takes: tp · cp · pp."""
    return trial.tp * trial.cp * trial.pp


def expert_replica(trial: NormalTrial) -> int:
    """GPUs one copy of the experts takes: etp · ep · pp."""
    return trial.etp * trial.ep * trial.pp


def data_parallel(trial: NormalTrial, world: int) -> int:
    """DP = world / (tp · cp · pp); 0 when a replica does not fit."""
    return world // attention_replica(trial)


def expert_data_parallel(trial: NormalTrial, world: int) -> int:
    """EDP = world / (etp · ep · pp); 0 when a replica does not fit."""
    return world // expert_replica(trial)


def num_microbatches(trial: NormalTrial, world: int) -> int:
    """Microbatches per iteration and pipeline: gbs / (mbs · dp); 0 when there are fewer samples."""
    return trial.gbs // max(1, trial.mbs * data_parallel(trial, world))


def gbs_of(num_microbatches: int, trial: NormalTrial, world: int) -> int:
    """The global batch of `num_microbatches` microbatches: what to set when those are given."""
    return num_microbatches * trial.mbs * data_parallel(trial, world)
