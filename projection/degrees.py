"""Group sizes and microbatches that follow from a trial and a cluster's size."""

from dataclasses import dataclass

from schemas.trial import NormalTrial


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


def degrees(trial: NormalTrial, world_size: int, num_experts: int | None) -> Degrees | Impossible:
    """Degrees of `trial` on `world_size` GPUs.

    Attention is folded as tp·cp·dp·pp and experts as etp·ep·edp·pp over the same GPUs; both must
    tile the world, and the global batch must be a whole number of microbatches per replica.
    """
    dense, experts = trial.tp * trial.cp * trial.pp, trial.etp * trial.ep * trial.pp
    for product, names, sizes in (
        (dense, "tp·cp·pp", f"{trial.tp}·{trial.cp}·{trial.pp}"),
        (experts, "etp·ep·pp", f"{trial.etp}·{trial.ep}·{trial.pp}"),
    ):
        if product > world_size:
            return Impossible(
                "replica_exceeds_world",
                f"{names} = {sizes} = {product} GPUs per replica, the cluster has {world_size}",
            )
        if world_size % product:
            return Impossible(
                "world_not_tiled",
                f"{names} = {sizes} = {product} does not divide the cluster's {world_size} GPUs",
            )
    if num_experts is not None and num_experts % trial.ep:
        return Impossible(
            "ep_not_divides_experts", f"ep = {trial.ep} does not divide {num_experts} experts"
        )
    dp = world_size // dense
    if trial.gbs % (trial.mbs * dp):
        return Impossible(
            "gbs_not_multiple",
            f"gbs = {trial.gbs} is not a multiple of mbs·dp = {trial.mbs}·{dp} = {trial.mbs * dp}",
        )
    return Degrees(dp, world_size // experts, trial.gbs // (trial.mbs * dp))
