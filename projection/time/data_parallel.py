"""Gradient reduction and parameter gathering across data-parallel ranks, and what is exposed.

Dense parameters reduce over data times context parallel, routed experts over the expert
data-parallel group. Without the distributed optimizer gradients are all-reduced; with it they are
reduce-scattered and the updated weights gathered. With overlap, Megatron reduces bucket by bucket
behind the backward pass of the last microbatch, and gathers behind the forward of the first one of
the next step; the last (first) bucket has nothing left to hide behind.
"""

from dataclasses import dataclass

from projection.kernels import KernelModels
from projection.operations import Collective, CollectiveKind, GroupName, Parameters

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
    experts_exchange_tokens: bool
    """Expert parallel all-to-alls run in backward, and bar the experts' gradients from hiding."""


@dataclass(frozen=True, slots=True)
class RankWindows:
    """What a rank can hide collectives behind, and how long it waits anyway, in ms."""

    backward: float
    """Backward of one microbatch through all its chunks."""
    forward: float
    idle_after: float
    """From its last backward to the pipeline's end."""
    idle_before: float
    """From the pipeline's start to its first forward."""
    buckets: bool
    """Whether it reduces in buckets: Megatron's first pipeline rank; the others reduce once."""


@dataclass(frozen=True, slots=True)
class ExposedDataParallel:
    """Milliseconds per iteration that no compute hides, and the algorithms that won."""

    grad_reduce: float
    param_gather: float
    algorithms: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Priced:
    whole: float
    bucket: float


def exposed_data_parallel(
    parameters: Parameters, settings: DataParallel, windows: RankWindows, models: KernelModels
) -> ExposedDataParallel:
    """What one rank's gradient reduction and parameter gathering add to the iteration."""
    algorithms: dict[str, str] = {}
    kind: CollectiveKind = "reduce_scatter" if settings.distributed_optimizer else "allreduce"
    dense = _price(
        "dp_grad_reduce", kind, parameters.dense, settings.gradient_bytes, "dp", models, algorithms
    )
    experts = _price(
        "edp_grad_reduce",
        kind,
        parameters.routed_experts,
        settings.gradient_bytes,
        "edp",
        models,
        algorithms,
    )
    reduce = _exposed_reduce(dense, experts, settings, windows)
    gather = 0.0
    if settings.distributed_optimizer:
        gather = _exposed_gather(parameters, settings, windows, models, algorithms)
    return ExposedDataParallel(reduce, gather, algorithms)


def _exposed_reduce(
    dense: _Priced, experts: _Priced, settings: DataParallel, windows: RankWindows
) -> float:
    """Exposed reduction: everything without overlap; else what outlasts the backward pass."""
    whole = dense.whole + experts.whole
    if not settings.overlap_grad_reduce:
        return max(0.0, whole - windows.idle_after)
    if not windows.buckets:
        return max(0.0, whole - windows.idle_after)
    barred = experts if settings.experts_exchange_tokens else _Priced(0.0, 0.0)
    free = dense.whole + experts.whole - barred.whole
    last = dense.bucket if dense.whole else experts.bucket
    exposed = max(min(last, free), free - windows.backward) + barred.whole
    return max(0.0, exposed - windows.idle_after)


def _exposed_gather(
    parameters: Parameters,
    settings: DataParallel,
    windows: RankWindows,
    models: KernelModels,
    algorithms: dict[str, str],
) -> float:
    """Exposed gathering: everything without overlap; else the first bucket and what outlasts."""
    dense = _price(
        "dp_param_gather",
        "allgather",
        parameters.dense,
        settings.weight_bytes,
        "dp",
        models,
        algorithms,
    )
    experts = _price(
        "edp_param_gather",
        "allgather",
        parameters.routed_experts,
        settings.weight_bytes,
        "edp",
        models,
        algorithms,
    )
    whole = dense.whole + experts.whole
    if not settings.overlap_param_gather:
        return whole
    first = dense.bucket if dense.whole else experts.bucket
    return max(0.0, max(min(first, whole), whole - windows.forward) - windows.idle_before)


def _price(
    name: str,
    kind: CollectiveKind,
    count: float,
    bytes_each: float,
    group: GroupName,
    models: KernelModels,
    algorithms: dict[str, str],
) -> _Priced:
    """Time of the whole message and of one bucket, 0 when nobody shares the parameters."""
    size = models.placement.group(group).size
    if size == 1 or not count:
        return _Priced(0.0, 0.0)
    priced = models.collective(Collective(name, kind, bytes_each * count, group))
    algorithms[name] = f"{priced.algorithm}/{priced.protocol}"
    bucket = min(count, max(BUCKET_PARAMETERS, BUCKET_PARAMETERS_PER_RANK * size))
    one = models.collective(Collective(name, kind, bytes_each * bucket, group))
    return _Priced(priced.time_ms, min(priced.time_ms, one.time_ms))
