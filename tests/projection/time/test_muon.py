"""Muon's step: its passes over fewer states, and the Newton-Schulz iterations of its matrices."""

from typing import Any

import pytest

from projection.memory.regime import Sharding
from projection.oracle import Oracle
from projection.time.muon import Matrices, matrices_of, newton_schulz_ms, orthogonalisation_ms
from projection.work.layer import LayerKind, layer_work
from projection.work.shape import WorkShape
from schemas.workload import Precision, Workload
from tests.builders import cluster, deepseek_v3, llama_70b, mixtral_8x22b
from tests.projection.time.test_iteration import SIGNATURE, TILE, ZERO_1

MUON = Precision(optimizer="muon")


def optimizer_ms(workload: Workload, precision: Precision, **knobs: Any) -> float:
    chosen = workload.model_copy(update={"precision": precision})
    oracle = Oracle(chosen, cluster(8), TILE, signature=SIGNATURE)
    evaluation = oracle.project(workload.baseline.model_copy(update=knobs))
    assert evaluation.legal, evaluation.reason
    return evaluation.time_breakdown_ms["optimizer"]


def test_newton_schulz_is_five_times_three_products() -> None:
    """Of [s, l]: 4 s² l + 2 s³ FLOPs a step, at a rate that GEMMs reach."""
    oracle = Oracle(llama_70b(), cluster(8), TILE, signature=SIGNATURE)
    models = oracle._time_model()._models
    time_ms = newton_schulz_ms(8192, 7168, models)
    assert time_ms == newton_schulz_ms(7168, 8192, models)
    flops = 5 * (4 * 7168**2 * 8192 + 2 * 7168**3)
    assert 0.3 * 2517 < flops / time_ms * 1e-9 < 2517
    many = (Matrices(1024, 4096, 6, False), Matrices(1024, 4096, 8, True))
    one = newton_schulz_ms(1024, 4096, models)
    for shards, expected in ((False, 14 * one), (True, 6 / 2 * one + 8 / 4 * one)):
        sharding = Sharding(dense=2, expert=4, shards_optimizer=shards, shards_weights=False)
        assert orthogonalisation_ms(many, sharding, models) == pytest.approx(expected)
    everywhere = Sharding(dense=64, expert=64, shards_optimizer=True, shards_weights=False)
    assert orthogonalisation_ms(many, everywhere, models) == one


@pytest.mark.parametrize(
    ("workload", "knobs"),
    [
        (llama_70b(), {**ZERO_1, "tp": 8, "pp": 2, "gbs": 64}),
        (mixtral_8x22b(), {}),
        (deepseek_v3(), {"pp": 8, "vpp": 4, "layout": None}),
    ],
)
def test_muon_computes_more_than_it_saves_in_passes(
    workload: Workload, knobs: dict[str, Any]
) -> None:
    assert optimizer_ms(workload, MUON, **knobs) > optimizer_ms(workload, Precision(), **knobs)


def test_all_matrices_of_a_layer_are_orthogonalised() -> None:
    """Their elements are the layer's parameters, norms left out."""
    architecture = deepseek_v3().architecture
    shape = WorkShape(micro_batch=1, seq_length=4096, padded_vocab=129280, ep=8)
    work = layer_work(architecture, shape, LayerKind("decoder", moe=True))
    elements = sum(m.rows * m.columns * m.count for m in matrices_of(work, 1))
    parameters = sum(module.parameters.total for module in work.modules)
    assert elements == pytest.approx(parameters, rel=1e-4)
