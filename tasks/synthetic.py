"""Made-up metrics for `dry` and `memory-real`: deterministic, plausible, and labelled synthetic.

They exist to exercise a search where there is no oracle, so they only promise three things: the
same trial gives the same numbers, levers move them in the direction they would really move them,
and nothing derived from them can be mistaken for a projection (provenance "synthetic").
"""

import math

from schemas.cluster import Cluster
from schemas.evaluation import Evaluation, SignatureHashes
from schemas.trial import NormalTrial
from schemas.workload import Workload

DRY_WARNING = "synthetic: memory and time were made up, no oracle was asked"
MEMORY_REAL_WARNING = "synthetic: time was made up from memory and axes, only memory was projected"

KEPT_BY_RECOMPUTE = {"none": 1.0, "selective": 0.6, "full": 0.12}
TIME_OF_RECOMPUTE = {"none": 1.0, "selective": 1.04, "full": 1.3}
JITTER = 0.02
"""Half-width of the hash-derived spread that keeps two configurations from tying."""


def jitter(trial_id: str) -> float:
    """A factor in [1 - JITTER, 1 + JITTER] that only the trial's identity decides."""
    return 1 + JITTER * (int(trial_id[:8], 16) / 0xFFFFFFFF * 2 - 1)


def synthetic_time_ms(trial: NormalTrial, cluster: Cluster, memory_gb: float) -> float:
    """A made-up iteration time: one millisecond per sequence and GPU, times what levers cost."""
    replicas = max(1, cluster.world_size // (trial.tp * trial.pp * trial.cp))
    microbatches = max(1.0, trial.gbs / (trial.mbs * replicas))
    bubble = 0.0 if trial.splits_backward else (trial.pp - 1) / (microbatches * trial.vpp)
    communication = 0.06 * math.log2(trial.tp * trial.cp) + 0.03 * math.log2(trial.ep)
    if trial.use_turbo_deepep or trial.sync_free_stage:
        communication *= 0.6
    compute = TIME_OF_RECOMPUTE[trial.recompute_granularity]
    compute *= 0.7 if trial.fp8 != "none" else 1.0
    compute /= 1 + 0.1 * math.log2(trial.mbs)
    pressure = 1 + min(0.1, max(0.0, memory_gb / cluster.cap_gb - 0.9))
    per_sequence_ms = 1000.0 * (compute + communication) * (1 + bubble) * pressure
    return per_sequence_ms * trial.gbs / cluster.world_size * jitter(trial.trial_id)


def synthetic_memory_gb(
    trial: NormalTrial, workload: Workload, cluster: Cluster
) -> tuple[float, float]:
    """Made-up (parameter and optimizer, activation) memory per GPU in 2^30 bytes."""
    a = workload.architecture
    attention = 4 * a.hidden_size * a.hidden_size
    width = a.moe_ffn_hidden_size or a.ffn_hidden_size
    experts = (a.num_experts or 1) if a.is_moe else 1
    expert_shards = trial.ep * trial.etp if a.is_moe else trial.tp
    per_layer = attention / trial.tp + 3 * experts * a.hidden_size * width / expert_shards
    parameters = per_layer * a.num_layers / trial.pp + a.vocab_size * a.hidden_size / trial.tp
    replicas = max(1, cluster.world_size // (trial.tp * trial.pp))
    sharded = trial.use_distributed_optimizer or trial.use_torch_fsdp2
    bytes_each = 6 + 12 / (replicas if sharded else 1)
    tokens = trial.mbs * workload.seq_length / (trial.tp * trial.cp)
    kept = KEPT_BY_RECOMPUTE[trial.recompute_granularity]
    activation = 34 * tokens * a.hidden_size * a.num_layers * kept
    return parameters * bytes_each / 2**30, activation / 2**30


def dry_evaluation(
    trial: NormalTrial, workload: Workload, cluster: Cluster, signature: SignatureHashes
) -> Evaluation:
    """The whole evaluation made up; `source` is "dry"."""
    static, activation = synthetic_memory_gb(trial, workload, cluster)
    memory = static + activation
    iteration_ms = synthetic_time_ms(trial, cluster, memory)
    return Evaluation(
        trial_id=trial.trial_id,
        config=trial.model_dump(mode="json"),
        legal=True,
        fits=memory <= cluster.cap_gb,
        cap_gb=cluster.cap_gb,
        memory_per_gpu_gb=memory,
        param_optimizer_gb=static,
        activation_gb=activation,
        memory_breakdown_gb={"synthetic_static": static, "synthetic_activation": activation},
        iteration_ms=iteration_ms,
        tokens_per_s_per_gpu=tokens_per_s_per_gpu(trial, workload, cluster, iteration_ms),
        time_breakdown_ms={"synthetic": iteration_ms},
        schedule=trial.pp_schedule,
        source="dry",
        provenance="synthetic",
        signature=signature,
        warnings=(DRY_WARNING,),
    )


def with_synthetic_time(
    memory: Evaluation, trial: NormalTrial, workload: Workload, cluster: Cluster
) -> Evaluation:
    """A projected memory with a made-up time; `source` is "memory_real"."""
    iteration_ms = synthetic_time_ms(trial, cluster, memory.memory_per_gpu_gb or 0.0)
    return memory.model_copy(
        update={
            "iteration_ms": iteration_ms,
            "tokens_per_s_per_gpu": tokens_per_s_per_gpu(trial, workload, cluster, iteration_ms),
            "time_breakdown_ms": {"synthetic": iteration_ms},
            "schedule": trial.pp_schedule,
            "source": "memory_real",
            "provenance": "synthetic",
            "warnings": (*memory.warnings, MEMORY_REAL_WARNING),
        }
    )


def tokens_per_s_per_gpu(
    trial: NormalTrial, workload: Workload, cluster: Cluster, iteration_ms: float
) -> float:
    """gbs · sequence length / iteration time / GPUs."""
    return trial.gbs * workload.seq_length / (iteration_ms / 1000) / cluster.world_size
