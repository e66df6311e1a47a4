"""Gradient reduction and parameter gathering across data-parallel ranks, and what is exposed.

Dense parameters reduce over data times context parallel, routed experts over the expert
data-parallel group. Without the distributed optimizer gradients are all-reduced; with it they are
reduce-scattered and the updated weights gathered. With overlap, Megatron reduces bucket by bucket
behind the backward pass of the last microbatch, and gathers behind the forward of the first one of
the next step; the last (first) bucket has nothing left to hide behind.
"""

from dataclasses import dataclass

from projection.kernels import KernelModels
from projection.memory.rank import RankParameters
from projection.memory.regime import DTYPE_BYTES
from projection.operations import Collective, CollectiveKind, GroupName
from projection.time.chunks import ChunkTimes
from schemas.trial import NormalTrial
from schemas.workload import Workload

BUCKET_PARAMETERS = 40_000_000
BUCKET_PARAMETERS_PER_RANK = 1_000_000
"""Megatron-Core: a bucket holds max(40 M, 1 M · dp) parameters."""


@dataclass(frozen=True, slots=True)
class DataParallel:
    """How a trial keeps its replicas equal."""

    distributed_optimizer: bool
    overlap_grad_reduce: bool
    overlap_param_gather: bool
    gradient_bytes: float
    """Per parameter, on the wire."""
    weight_bytes: float
    """Per gathered parameter; `linear_weight_bytes` of those of linear layers, which FP8 gathers
    take in one byte. Embeddings, the output head and norms stay as they are."""
    linear_weight_bytes: float
    experts_exchange_tokens: bool
    """Expert parallel all-to-alls run in backward, and bar the experts' gradients from hiding."""


@dataclass(frozen=True, slots=True)
class RankWindows:
    """What a rank can hide collectives behind, and how long it waits anyway, in ms."""

    backward: float
    """Backward of the last microbatch through all its chunks, and what lies between them."""
    forward: float
    idle_after: float
    """From its last backward to the pipeline's end."""
    idle_before: float
    """From the pipeline's start to its first forward."""
    buckets: bool
    """Whether it reduces in buckets: Megatron's first pipeline rank; the others reduce once."""


@dataclass(frozen=True, slots=True)
class Message:
    """One collective alone: the whole message, and one bucket of it, in ms."""

    whole: float = 0.0
    bucket: float = 0.0
    algorithm: str = ""


NO_MESSAGE = Message()


@dataclass(frozen=True, slots=True)
class RankMessages:
    """What one rank sends for its replicas each iteration, before any overlap."""

    dense_reduce: Message
    expert_reduce: Message
    dense_gather: Message
    expert_gather: Message

    def algorithms(self) -> dict[str, str]:
        """The algorithms that won, dense parameters' first, per collective that takes place."""
        pairs = {
            "dp_grad_reduce": (self.dense_reduce, self.expert_reduce),
            "dp_param_gather": (self.dense_gather, self.expert_gather),
        }
        named = {
            name: ", ".join(message.algorithm for message in pair if message.whole)
            for name, pair in pairs.items()
        }
        return {name: algorithm for name, algorithm in named.items() if algorithm}


def data_parallel_settings(trial: NormalTrial, workload: Workload) -> DataParallel:
    """How `trial` keeps its replicas equal, with the bytes its precision puts on the wire."""
    precision = workload.precision
    in_bf16 = precision.grad_reduce_in_bf16 or precision.main_grads_dtype == "bf16"
    fp8_gather = trial.fp8 != "none" and precision.fp8_param_gather
    weight_bytes = float(DTYPE_BYTES[precision.params_dtype])
    return DataParallel(
        distributed_optimizer=trial.use_distributed_optimizer,
        overlap_grad_reduce=trial.overlap_grad_reduce,
        overlap_param_gather=trial.overlap_param_gather,
        gradient_bytes=2.0 if in_bf16 else 4.0,
        weight_bytes=weight_bytes,
        linear_weight_bytes=1.0 if fp8_gather else weight_bytes,
        experts_exchange_tokens=trial.ep > 1,
    )


def rank_windows(
    chunks: tuple[tuple[ChunkTimes, ...], ...], *, splits: bool, last_backward_ms: float
) -> tuple[RankWindows, ...]:
    """What each rank can hide data-parallel collectives behind.

    Between the chunks of a rank the last microbatch visits others, so the first rank, which alone
    reduces in buckets, has as long as the pipeline says (`Timeline.last_backward_ms`).

    In 1F1B and interleaved schedules rank r runs its last backward before those of ranks r - 1 … 0
    on the same microbatch, and its first forward after theirs; split schedules fill that tail with
    weight gradients, so nobody waits.
    """
    windows: list[RankWindows] = []
    before = after = 0.0
    for rank, row in enumerate(chunks):
        windows.append(
            RankWindows(
                backward=(
                    last_backward_ms
                    if rank == 0 and len(row) > 1
                    else sum([chunk.backward_ms for chunk in row])
                ),
                forward=sum([chunk.passes[0] for chunk in row]),
                idle_after=0.0 if splits else after,
                idle_before=before,
                buckets=rank == 0,
            )
        )
        before += row[0].passes[0]
        after += row[0].backward_ms
    return tuple(windows)


def rank_messages(
    rank: RankParameters, settings: DataParallel, models: KernelModels
) -> RankMessages:
    """Price the collectives of a rank that holds these parameters."""
    kind: CollectiveKind = "reduce_scatter" if settings.distributed_optimizer else "allreduce"
    gathers = settings.distributed_optimizer
    dense, experts = rank.parameters.dense, rank.parameters.routed_experts
    gradient = settings.gradient_bytes
    of_dense = _gathered_bytes(dense, rank.linear_dense, settings)
    of_experts = _gathered_bytes(experts, rank.linear_experts, settings)
    return RankMessages(
        dense_reduce=_message(kind, dense, gradient, "dp", models),
        expert_reduce=_message(kind, experts, gradient, "edp", models),
        dense_gather=_message("allgather", dense if gathers else 0, of_dense, "dp", models),
        expert_gather=_message("allgather", experts if gathers else 0, of_experts, "edp", models),
    )


def _gathered_bytes(count: float, linear: float, settings: DataParallel) -> float:
    """Bytes of a gathered parameter, in the mean over `count`, of which `linear` are linear."""
    share = linear / count if count else 0.0
    return share * settings.linear_weight_bytes + (1 - share) * settings.weight_bytes


def _message(
    kind: CollectiveKind, count: float, bytes_each: float, group: GroupName, models: KernelModels
) -> Message:
    """Time of the whole message and of one bucket; nothing when nobody shares the parameters."""
    size = models.placement.group(group).size
    if size == 1 or not count:
        return NO_MESSAGE
    priced = models.collective(Collective(group, kind, bytes_each * count, group))
    bucket = min(count, max(BUCKET_PARAMETERS, BUCKET_PARAMETERS_PER_RANK * size))
    one = models.collective(Collective(group, kind, bytes_each * bucket, group))
    return Message(
        priced.time_ms,
        min(priced.time_ms, one.time_ms),
        f"{priced.algorithm}/{priced.protocol}",
    )


def exposed_reduce(messages: RankMessages, settings: DataParallel, windows: RankWindows) -> float:
    """Gradient reduction that adds to the iteration, in ms.

    Without overlap, or without buckets, all of it, less the time the rank would wait anyway. With
    buckets, the last one and whatever outlasts the backward pass; experts' gradients do not hide
    behind a backward pass whose all-to-alls are barriers (Primus Projection, appendix B.3).
    """
    dense, experts = messages.dense_reduce, messages.expert_reduce
    whole = dense.whole + experts.whole
    if not (settings.overlap_grad_reduce and windows.buckets):
        return max(0.0, whole - windows.idle_after)
    barred = experts.whole if settings.experts_exchange_tokens else 0.0
    free = whole - barred
    last = dense.bucket or experts.bucket
    exposed = max(min(last, free), free - windows.backward) + barred
    return max(0.0, exposed - windows.idle_after)


def exposed_gather(messages: RankMessages, settings: DataParallel, windows: RankWindows) -> float:
    """Parameter gathering that adds to the iteration, in ms.

    Without overlap all of it, on every rank at once; with it, the first bucket and whatever
    outlasts the first forward pass, less the time until the rank's first microbatch arrives.
    """
    dense, experts = messages.dense_gather, messages.expert_gather
    whole = dense.whole + experts.whole
    if not settings.overlap_param_gather:
        return whole
    first = dense.bucket or experts.bucket
    return max(0.0, max(first, whole - windows.forward) - windows.idle_before)
