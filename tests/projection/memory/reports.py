"""Memory reports of workloads, and parts of them, for the tests beside this file."""

from typing import Any

from projection.degrees import Degrees, degrees
from projection.memory.model import MemoryModel
from projection.memory.rank import RankParameters
from projection.memory.report import PARAM_OPTIMIZER, MemoryReport
from projection.schedules import build
from projection.work.catalog import Catalog
from projection.work.context import work_shape
from schemas.cluster import MemoryOverheads, MoeImbalance
from schemas.evaluation import RankMemory
from schemas.workload import Workload
from tests.builders import cluster

GIB = 2**30


def report(
    workload: Workload,
    num_nodes: int = 4,
    imbalance: MoeImbalance | None = None,
    overheads: MemoryOverheads | None = None,
    **knobs: Any,
) -> MemoryReport:
    """Memory of `workload` with `knobs` changed, on nodes of eight MI355X."""
    on = cluster(
        num_nodes, moe_imbalance=imbalance, memory_overheads=overheads or MemoryOverheads()
    )
    model = MemoryModel(workload, on, Catalog(workload.architecture))
    trial = workload.baseline.model_copy(update=knobs)
    sizes = degrees(trial, on, workload.architecture, workload.seq_length)
    assert isinstance(sizes, Degrees), sizes
    schedule = build(trial.pp_schedule, trial.pp, trial.vpp, sizes.num_microbatches)
    return model.report(trial, sizes, schedule)


def components(memory: MemoryReport, rank: int = 0) -> dict[str, float]:
    """The lines of one rank."""
    return memory.ranks[rank].components


def static_gb(rank: RankMemory) -> float:
    """Weights, gradients and states of a rank, whichever phase it peaks in."""
    standing = ("framework_context", "communicator_buffers")
    return rank.phases_gb["checkpoint_load"] - sum(
        rank.components.get(name, 0.0) for name in standing
    )


def static_lines_gb(rank: RankMemory) -> float:
    """The static lines of a rank that peaks while it works."""
    return sum(rank.components.get(name, 0.0) for name in PARAM_OPTIMIZER)


def parameters_of(workload: Workload, num_nodes: int = 4, **knobs: Any) -> list[RankParameters]:
    """Parameters of every rank on one GPU."""
    on = cluster(num_nodes)
    trial = workload.baseline.model_copy(update=knobs)
    model = MemoryModel(workload, on, Catalog(workload.architecture))
    return list(model.parameters(trial, work_shape(trial, workload, routed_load=1.0)))
