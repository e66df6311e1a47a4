"""Expert load imbalance: busiest over mean rank, per layer and pooled over a step.

Defaults are a trained 256-expert model's (Primus Projection, arXiv 2610.19423, appendix F, table
23): 32, 16 and 8 experts per GPU gave a per-layer median of 1.38, 1.58 and 2.13, and 1.05, 1.08 and
1.12 pooled over the step, where peaks of different layers fall on different ranks. The penalty
depends on experts per rank; between the measured points it is interpolated in their logarithm,
outside it is held.
"""

from itertools import pairwise
from math import log2

from schemas.architecture import Architecture
from schemas.cluster import Cluster, MoeImbalance
from schemas.workload import Workload

MEASURED = ((8, 2.13, 1.12), (16, 1.58, 1.08), (32, 1.38, 1.05))
"""(experts per rank, per-layer imbalance, pooled imbalance)."""

BALANCED = MoeImbalance()


def most_uneven(architecture: Architecture, ep: int) -> float:
    """The largest imbalance there can be: every token sends all the copies it can to one rank.

    A token's top-k experts are distinct, so a rank of E / ep experts gets at most that many of the
    copies: ep · min(E / ep, k) / k. It is 1 where every token goes to every expert.
    """
    copies = architecture.moe_router_topk
    local = int(architecture.num_experts or 1) / ep
    return ep * min(local, copies) / copies


def moe_imbalance(workload: Workload, cluster: Cluster, ep: int) -> MoeImbalance:
    """The imbalance a trial of expert-parallel size `ep` is projected with.

    1 where it cannot arise (no experts, or all on every rank) or is switched off (forced load
    balancing, a benchmarking device); else what the cluster file sets; else the trained model's.
    """
    experts = workload.architecture.num_experts
    if not workload.architecture.is_moe or experts is None or ep == 1:
        return BALANCED
    if workload.force_load_balancing:
        return BALANCED
    ratios = cluster.moe_imbalance
    if ratios is None:
        per_rank = experts / ep
        ratios = MoeImbalance(layer=_interpolate(per_rank, 1), pooled=_interpolate(per_rank, 2))
    most = most_uneven(workload.architecture, ep)
    if max(ratios.layer, ratios.pooled) <= most:
        return ratios
    return MoeImbalance(layer=min(ratios.layer, most), pooled=min(ratios.pooled, most))


def _interpolate(per_rank: float, column: int) -> float:
    """`MEASURED[column]` at `per_rank` experts, linear in the logarithm, held at both ends."""
    points = [(log2(row[0]), row[column]) for row in MEASURED]
    at = min(max(log2(per_rank), points[0][0]), points[-1][0])
    for (left, low), (right, high) in pairwise(points):
        if at <= right:
            return low + (high - low) * (at - left) / (right - left)
    return points[-1][1]
