"""The GPU waits for its host where launches outlast kernels, and where the host waits for it."""

import pytest

from projection.kernels import (
    EXPERT_OPERATIONS,
    LINEAR_OPERATIONS,
    PLAIN_OPERATIONS,
    host_operations,
)
from projection.operations import AttentionCore, Collective, Gemm, MemoryPass, ModuleWork
from projection.oracle import Oracle
from projection.profiles import achievable
from projection.time.cost import Cost
from projection.time.fsdp import NO_FSDP
from projection.time.graphs import EAGER, ROUTED, SCOPES
from projection.time.host import host_idle
from projection.time.layers import HostTimes, LayerTimes
from projection.work.context import work_shape
from projection.work.embedding import token_embedding
from projection.work.layer import kind_of_layer, layer_work
from projection.work.moe import host_syncs
from projection.work.output import output_block
from projection.work.shape import WorkShape
from schemas.cluster import Cluster
from schemas.evaluation import Evaluation, SignatureHashes
from schemas.search import SearchSpec
from schemas.workload import Workload
from tests.builders import cluster, deepseek_v3, mi355x, mixtral_8x22b, small_dense, small_moe

SIGNATURE = SignatureHashes(model="0" * 16, cluster="0" * 16, stack="0" * 16)


def project(workload: Workload, on: Cluster | None = None, **knobs: object) -> Evaluation:
    search = SearchSpec(gemm_backend="tile")
    oracle = Oracle(workload, on or cluster(1), search, signature=SIGNATURE)
    result = oracle.project(workload.baseline.model_copy(update=knobs))
    assert result.legal, result.reason
    return result


def waiting(result: Evaluation) -> float:
    return result.time_breakdown_ms.get("host_launch", 0.0)


def layer(gpu_ms: float, host_ms: float, syncs_ms: float = 0.0) -> LayerTimes:
    one = Cost(gemm=gpu_ms)
    host = HostTimes(host_ms, host_ms, host_ms, 0.0, syncs_ms)
    return LayerTimes(one, one, one, Cost(), (), host)


def test_an_operation_costs_the_host_what_its_kind_of_call_does() -> None:
    assert host_operations(Gemm("plain", 8, 8, 8)) == PLAIN_OPERATIONS
    assert host_operations(Gemm("linear", 8, 8, 8, call="linear")) == LINEAR_OPERATIONS
    grouped = Gemm("experts", 8, 8, 8, 4, call="grouped")
    assert host_operations(grouped) == LINEAR_OPERATIONS + 4 * EXPERT_OPERATIONS
    assert host_operations(MemoryPass("pass", 1.0, launches=7)) == 7
    core = AttentionCore("core", 1, 1, 1, 8, 8, 8, 8)
    assert host_operations(core) == LINEAR_OPERATIONS
    assert host_operations(Collective("sum", "allreduce", 1.0, "tp")) == PLAIN_OPERATIONS


def test_a_host_ahead_of_its_gpu_costs_nothing_and_one_behind_the_difference() -> None:
    assert host_idle([(3, 0, layer(2.0, 1.0), NO_FSDP)], splits=False) == (0.0, 0.0, 0.0)
    assert host_idle([(3, 0, layer(1.0, 1.5), NO_FSDP)], splits=True) == (1.5, 1.5, 1.5)
    assert host_idle([(3, 0, layer(1.0, 1.5), NO_FSDP)], splits=False) == (1.5, 3.0, 0.0)


def test_a_lead_carries_over_layers_unless_the_host_waits_in_between() -> None:
    slow, fast = layer(1.0, 2.0), layer(3.0, 1.0)
    assert host_idle([(1, 0, slow, NO_FSDP), (1, 0, fast, NO_FSDP)], splits=False)[0] == 0.0
    waits = layer(1.0, 2.0, syncs_ms=0.1)
    assert host_idle([(1, 0, waits, NO_FSDP), (1, 0, fast, NO_FSDP)], splits=False)[
        0
    ] == pytest.approx(1.1)


def test_recomputed_layers_are_launched_and_waited_for_again() -> None:
    once = host_idle([(2, 0, layer(1.0, 1.5), NO_FSDP)], splits=False)
    again = host_idle([(2, 2, layer(1.0, 1.5), NO_FSDP)], splits=False)
    assert again[1] - once[1] == pytest.approx(1.0)
    waits = layer(5.0, 1.0, syncs_ms=0.1)
    assert host_idle([(2, 1, waits, NO_FSDP)], splits=False) == (
        pytest.approx(0.2),
        pytest.approx(0.1),
        0,
    )


def test_small_models_are_bound_by_launches_and_large_ones_are_not() -> None:
    small = project(small_dense())
    assert waiting(small) > 0.3 * (small.iteration_ms or 0)
    assert waiting(project(mixtral_8x22b(), cluster(4))) < 0.02 * (
        project(mixtral_8x22b(), cluster(4)).iteration_ms or 0
    )


def test_a_larger_micro_batch_costs_a_launch_bound_model_nothing_more() -> None:
    one, two = project(small_dense(), gbs=64), project(small_dense(), gbs=128, mbs=2)
    assert one.num_microbatches == two.num_microbatches
    assert two.iteration_ms == pytest.approx(one.iteration_ms, rel=0.05)


@pytest.mark.parametrize(("stage", "syncs"), [(0, 4), (1, 2), (2, 1), (3, 0)])
def test_sync_free_stages_remove_the_waits_that_primus_says(stage: int, syncs: int) -> None:
    shape = WorkShape(micro_batch=1, seq_length=8, padded_vocab=8, sync_free_stage=stage)
    assert host_syncs(shape) == syncs


def test_every_sync_free_stage_waits_less() -> None:
    waits = [
        waiting(project(small_moe(), use_turbo_deepep=True, sync_free_stage=stage, ep=4))
        for stage in (0, 1, 2, 3)
    ]
    assert waits == sorted(waits, reverse=True)
    assert waits[0] > 1.1 * waits[3]


def test_every_gpu_states_what_a_launch_costs_its_host() -> None:
    assert achievable(mi355x()).host_launch_us > 0
    assert achievable(mi355x()).host_sync_us > achievable(mi355x()).host_launch_us


def small_batches(**fields: object) -> Workload:
    return small_moe(mbs=1, gbs=8).model_copy(update=fields)


def test_a_graph_of_the_iteration_leaves_nothing_to_wait_for() -> None:
    assert waiting(project(small_batches())) > 0
    assert waiting(project(small_batches(cuda_graphs=("full_iteration",)))) == 0


def test_a_graph_of_less_leaves_more_to_wait_for() -> None:
    scopes = ((), ("attn",), ("attn", "moe_router"), ("layer",), ("full_iteration",))
    waits = [waiting(project(small_batches(cuda_graphs=scope))) for scope in scopes]
    assert waits == sorted(waits, reverse=True)
    assert len(set(waits)) > 3


def test_the_scopes_of_graphs_name_modules_there_are() -> None:
    named = {name for scope in SCOPES.values() for name in scope} | EAGER | ROUTED
    assert named <= {
        module.name for workload in (small_dense(), deepseek_v3()) for module in modules(workload)
    }


def modules(workload: Workload) -> list[ModuleWork]:
    """Of every kind of layer, and of both ends of the model."""
    architecture = workload.architecture
    shape = work_shape(workload.baseline, workload, routed_load=1.0)
    kinds = {kind_of_layer(architecture, layer) for layer in range(architecture.num_layers)}
    layers = [layer_work(architecture, shape, kind) for kind in kinds]
    ends = [token_embedding(architecture, shape), *output_block(architecture, shape)]
    return [*ends, *(module for layer in layers for module in layer.modules)]
