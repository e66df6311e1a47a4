"""Group sizes and microbatches that follow from a trial and a cluster, or why there are none.

Parallel folding, as Megatron builds it: over the same GPUs of one pipeline stage, attention is laid
out as tp · cp · dp and the experts as etp · ep · edp. The batch is split over dp.

Only what is physically impossible is refused here; what a framework or a search does not allow is
legality's business. Codes and wording agree with the legality rules.
"""

from dataclasses import dataclass

from projection.placement import Placement
from schemas.architecture import Architecture
from schemas.cluster import Cluster
from schemas.errors import UserError
from schemas.trial import NormalTrial

SIZES = ("tp", "pp", "ep", "etp", "cp", "vpp", "mbs", "gbs")
MAX_GBS = 2**24
"""Sequences of an iteration. With more the grid of exact times (`exact_costs`), which spans the
iteration, is too coarse for one pass: from 2^40 on that is seen in tokens/s."""


@dataclass(frozen=True, slots=True)
class Degrees:
    """What the world size leaves over: data parallelism, and the microbatches of an iteration."""

    dp: int
    edp: int
    num_microbatches: int


@dataclass(frozen=True, slots=True)
class Impossible:
    """Why a trial cannot run at all: a stable code and one sentence with the numbers."""

    code: str
    reason: str


def attention_replica(trial: NormalTrial) -> int:
    """GPUs one copy of the dense part takes: tp · cp · pp."""
    return trial.tp * trial.cp * trial.pp


def expert_replica(trial: NormalTrial) -> int:
    """GPUs one copy of the experts takes: etp · ep · pp."""
    return trial.etp * trial.ep * trial.pp


def data_parallel(trial: NormalTrial, world: int) -> int:
    """DP = world / (tp · cp · pp); 0 when a replica does not fit."""
    return world // attention_replica(trial)


def num_microbatches(trial: NormalTrial, world: int) -> int:
    """Microbatches per iteration and pipeline: gbs / (mbs · dp); 0 when there are fewer samples."""
    return trial.gbs // max(1, trial.mbs * data_parallel(trial, world))


def gbs_of(microbatches: int, trial: NormalTrial, world: int) -> int:
    """The global batch of so many microbatches per iteration and pipeline, in samples.

    Where no whole replica fits, as of one replica.
    """
    return microbatches * trial.mbs * max(1, data_parallel(trial, world))


def degrees(
    trial: NormalTrial, cluster: Cluster, architecture: Architecture, seq_length: int
) -> Degrees | Impossible:
    """Degrees of `trial` on `cluster`.

    Attention is folded as tp·cp·dp·pp and experts as etp·ep·edp·pp over the same GPUs; both must
    tile the world (a dense model has no experts to fold), and the global batch must be a whole
    number of microbatches per replica.
    """
    world_size = cluster.world_size
    problem = tiling(trial, cluster, architecture) or _shares(trial, architecture, seq_length)
    if trial.fp8 != "none" and cluster.gpu.fp8_tflops is None:
        problem = problem or Impossible(
            "fp8_unsupported", f"fp8 {trial.fp8}: {cluster.gpu.name} has no FP8 matrix units"
        )
    if problem is not None:
        return problem
    dp = data_parallel(trial, world_size)
    edp = world_size // expert_replica(trial) if architecture.is_moe else dp
    if trial.gbs % (trial.mbs * dp):
        return Impossible(
            "gbs_not_divisible",
            f"gbs {trial.gbs} is not a multiple of mbs·dp = {trial.mbs}·{dp} = {trial.mbs * dp}",
        )
    if unfolded := _unfolded(cluster, trial.pp, dp, edp):
        return unfolded
    return Degrees(dp, edp, num_microbatches(trial, world_size))


def placement_of(trial: NormalTrial, cluster: Cluster, architecture: Architecture) -> Placement:
    """The groups of ranks `trial` makes of `cluster`, whatever its batch.

    Raises:
        UserError: its sizes do not tile the cluster in the cluster's order.
    """
    problem = tiling(trial, cluster, architecture)
    if problem is None:
        dp = data_parallel(trial, cluster.world_size)
        edp = cluster.world_size // expert_replica(trial) if architecture.is_moe else dp
        problem = _unfolded(cluster, trial.pp, dp, edp)
        if problem is None:
            return placed(cluster, *placed_sizes(trial, Degrees(dp, edp, 0), architecture))
    raise UserError(problem.reason)


def placed_sizes(
    trial: NormalTrial, sizes: Degrees, architecture: Architecture
) -> tuple[int, int, int, int, int, int, int]:
    """tp, cp, pp, dp, ep, etp, edp of a placement; a dense model's experts lie as its rest does."""
    experts = (trial.ep, trial.etp, sizes.edp)
    if not architecture.is_moe:
        experts = (trial.cp, trial.tp, sizes.dp)
    return (trial.tp, trial.cp, trial.pp, sizes.dp, *experts)


def placed(
    cluster: Cluster, tp: int, cp: int, pp: int, dp: int, ep: int, etp: int, edp: int
) -> Placement:
    """The placement of `placed_sizes` on `cluster`."""
    return Placement(cluster, tp=tp, cp=cp, pp=pp, dp=dp, ep=ep, etp=etp, edp=edp)


def tiling(trial: NormalTrial, cluster: Cluster, architecture: Architecture) -> Impossible | None:
    """Why the sizes of `trial` are no tiling of `cluster`; None: they are one."""
    return _sizes(trial) or _replicas(trial, cluster.world_size, architecture)


def _unfolded(cluster: Cluster, pp: int, dp: int, edp: int) -> Impossible | None:
    """Pipelines inside data parallelism that dense layers and experts would build differently."""
    if cluster.placement == "tp-cp-ep-pp-dp" and pp > 1 and edp != dp:
        return Impossible(
            "placement_not_folded",
            f"placement {cluster.placement} needs edp = dp, here edp = {edp} and dp = {dp}",
        )
    return None


def _sizes(trial: NormalTrial) -> Impossible | None:
    """Sizes that are not at least 1, and a batch that no iteration has."""
    for name in SIZES:
        value = getattr(trial, name)
        if value < 1:
            return Impossible("not_positive", f"{name} is {value}, it must be at least 1")
    if trial.gbs > MAX_GBS:
        return Impossible("gbs_too_large", f"gbs is above {MAX_GBS:,}, the largest")
    return None


def _replicas(trial: NormalTrial, world_size: int, architecture: Architecture) -> Impossible | None:
    """Replicas that do not tile the GPUs."""
    replicas = [("tp·cp·pp", (trial.tp, trial.cp, trial.pp))]
    if architecture.is_moe:
        replicas.append(("etp·ep·pp", (trial.etp, trial.ep, trial.pp)))
    for names, sizes in replicas:
        product = sizes[0] * sizes[1] * sizes[2]
        if world_size % product:
            numbers = f"{names} = {sizes[0]}·{sizes[1]}·{sizes[2]} = {product}"
            verb = "exceeds" if product > world_size else "does not divide"
            return Impossible("world_not_tiled", f"{numbers} {verb} the {world_size} GPUs")
    return None


def _shares(trial: NormalTrial, architecture: Architecture, seq_length: int) -> Impossible | None:
    """Experts or positions that cannot be shared out."""
    experts = architecture.num_experts
    if architecture.is_moe and experts is not None and experts % trial.ep:
        return Impossible("ep_experts", f"ep {trial.ep} does not divide the {experts} experts")
    if seq_length % trial.cp:
        return Impossible("cp_sequence", f"cp {trial.cp} does not divide seq_length {seq_length}")
    return None
