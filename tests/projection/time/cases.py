"""Any legal trial of many models on any cluster, for properties that hold for all of them."""

from dataclasses import dataclass

from hypothesis import assume
from hypothesis import strategies as st

from projection.legality import LegalSpace
from projection.oracle import Oracle
from projection.placement import Group, Placement
from projection.profiles import gpu_profile, network_profile
from schemas.cluster import Cluster
from schemas.evaluation import Evaluation, SignatureHashes
from schemas.search import SearchSpec
from schemas.trial import NormalTrial
from schemas.workload import Workload
from tests.builders import (
    cluster,
    llama_70b,
    mixtral_8x22b,
    small_dense,
    small_latent,
    small_moe,
)

SIGNATURE = SignatureHashes(model="0" * 16, cluster="0" * 16, stack="0" * 16)
TILE = SearchSpec(gemm_backend="tile")


def with_architecture(workload: Workload, **changes: object) -> Workload:
    architecture = workload.architecture.model_copy(update=changes)
    return workload.model_copy(update={"architecture": architecture})


def by_heads(workload: Workload) -> Workload:
    return workload.model_copy(update={"cp_comm_type": "a2a"})


def overlapping(workload: Workload) -> Workload:
    return workload.model_copy(update={"moe_shared_expert_overlap": True, "tp_comm_overlap": True})


WORKLOADS = {
    "dense": small_dense(gbs=64),
    "one layer": with_architecture(small_dense(gbs=64), num_layers=1),
    "sliding window": with_architecture(small_dense(gbs=64), sliding_window=256),
    "all-to-all context parallelism": by_heads(small_dense(gbs=64)),
    "experts": small_moe(gbs=64),
    "shared expert, overlapping": overlapping(
        with_architecture(small_moe(gbs=64), shared_expert_hidden_size=1024)
    ),
    "latent attention": small_latent(gbs=64),
    "Llama 70B": llama_70b(gbs=64),
    "Mixtral 8x22B": mixtral_8x22b(gbs=64),
}
CHANGES: dict[str, dict[str, object]] = {
    "mesh": {"node_topology": "mesh"},
    "switch": {"node_topology": "switch"},
    "shared NICs behind a switch": {"switch_topology": True, "nics_per_node": 1},
    "pods of one node": {"pod_size": 1},
}


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """1 to 64 GPUs of any vendor, nodes of 1 to 8, meshed or switched, one pod or several."""
    names = ["mi300x", "mi325x", "mi355x", "a100", "h100", "b200", "gb200"]
    gpu = gpu_profile(draw(st.sampled_from(names)))
    nodes, per_node = draw(st.sampled_from([1, 2, 4, 8])), draw(st.sampled_from([1, 2, 4, 8]))
    built = cluster(nodes, per_node, gpu)
    network = built.network
    if draw(st.booleans()) and per_node <= network_profile(gpu.name).node_size:
        network = network_profile(gpu.name, per_node)
    network = network.model_copy(update=CHANGES[draw(st.sampled_from(sorted(CHANGES)))])
    order = draw(st.sampled_from(["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"]))
    return built.model_copy(update={"network": network, "placement": order})


@dataclass(frozen=True)
class Case:
    """A legal trial, and what to project it on."""

    workload: Workload
    cluster: Cluster
    trial: NormalTrial

    def project(self, on: Cluster | None = None, **knobs: object) -> Evaluation:
        oracle = Oracle(self.workload, on or self.cluster, TILE, signature=SIGNATURE)
        return oracle.project(self.trial.model_copy(update=knobs))

    def ms(self, on: Cluster | None = None) -> float:
        result = self.project(on)
        assert result.legal, result.reason
        assert result.iteration_ms is not None
        return result.iteration_ms

    def replicas(self, **knobs: object) -> tuple[Group, Group]:
        """Where the ranks lie that reduce gradients: of dense weights, and of experts."""
        t = self.trial.model_copy(update=knobs)
        on, per_stage = self.cluster, self.cluster.world_size // t.pp
        etp, ep = (t.etp, t.ep) if self.workload.architecture.is_moe else (t.tp, t.cp)
        dp, edp = per_stage // (t.tp * t.cp), per_stage // (etp * ep)
        placed = Placement(on, tp=t.tp, cp=t.cp, pp=t.pp, dp=dp, ep=ep, etp=etp, edp=edp)
        return placed.group("dp"), placed.group("edp")


@st.composite
def cases(draw: st.DrawFn, names: tuple[str, ...] = tuple(WORKLOADS)) -> Case:
    workload, on = WORKLOADS[draw(st.sampled_from(names))], draw(clusters())
    space = LegalSpace(workload, on, TILE)
    count = space.count()
    assume(count)
    return Case(workload, on, space[draw(st.integers(0, count - 1))])
