"""Layers alone against the closed forms of Korthikanti et al. 2022 (arXiv 2205.05198).

What the paper counts is layers, without embedding, output head and working sets: the lines
`weights`, `gradients`, `optimizer`, and `activations` with `activation_checkpoints`. Unfused
attention, dropout, LayerNorm with biases, 16-bit weights, no distributed optimizer.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from projection.degrees import Degrees, degrees
from projection.memory.model import MemoryModel
from projection.schedules import build
from projection.work.catalog import Catalog
from schemas.architecture import Architecture
from schemas.evaluation import RankMemory
from schemas.workload import Workload
from tests.builders import a100, cluster, trial, workload

ROWS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent / "korthikanti.json").read_text(encoding="utf-8")
)["rows"]
NONE: dict[str, Any] = {"recompute_granularity": "none"}
SELECTIVE: dict[str, Any] = {"recompute_granularity": "selective"}
FULL: dict[str, Any] = {
    "recompute_granularity": "full",
    "recompute_method": "uniform",
    "recompute_num_layers": 1,
}
SETTINGS = {"seq": (NONE, True), "sel": (SELECTIVE, False), "seqsel": (SELECTIVE, True)}


def published(row: dict[str, Any], *, sequence_parallel: bool) -> Workload:
    gpt = Architecture(
        name=row["model"],
        num_layers=row["layers"],
        hidden_size=row["hidden"],
        ffn_hidden_size=4 * row["hidden"],
        num_attention_heads=row["heads"],
        num_query_groups=row["heads"],
        kv_channels=row["hidden"] // row["heads"],
        vocab_size=51200,
        gated_mlp=False,
        normalization="LayerNorm",
        add_bias_linear=True,
        tied_embeddings=True,
        learned_positions=2048,
    )
    ran = trial(
        tp=row["tp"],
        pp=row["pp"],
        vpp=row["vpp"],
        mbs=row["mbs"],
        gbs=row["gbs"],
        pp_schedule="interleaved" if row["vpp"] > 1 else "1f1b",
        use_distributed_optimizer=False,
    )
    return workload(
        gpt,
        ran,
        seq_length=2048,
        flash_attention=False,
        attention_dropout=0.1,
        hidden_dropout=0.1,
        sequence_parallel=sequence_parallel,
    )


def first_rank(
    row: dict[str, Any], recompute: dict[str, Any], *, sequence_parallel: bool = False
) -> RankMemory:
    given = published(row, sequence_parallel=sequence_parallel)
    on = cluster(row["tp"] * row["pp"] // 8, gpu=a100())
    ran = given.baseline.model_copy(update=recompute)
    sizes = degrees(ran, on, given.architecture, given.seq_length)
    assert isinstance(sizes, Degrees), sizes
    schedule = build(ran.pp_schedule, ran.pp, ran.vpp, sizes.num_microbatches)
    model = MemoryModel(given, on, Catalog(given.architecture))
    return model.report(ran, sizes, schedule).ranks[0]


def activations(rank: RankMemory) -> float:
    return sum(rank.components.get(name, 0.0) for name in ("activations", "activation_checkpoints"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["model"])
def test_parameters_and_optimizer_of_layers_are_the_published_figure(row: dict[str, Any]) -> None:
    lines = first_rank(row, NONE).components
    static = lines["weights"] + lines["gradients"] + lines["optimizer"]
    assert static == pytest.approx(row["params_and_optimizer"], rel=5e-3)
    assert lines["vocabulary_weights"] > 0


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["model"])
def test_activations_of_layers_are_the_published_figures(row: dict[str, Any]) -> None:
    none = activations(first_rank(row, NONE))
    both = activations(first_rank(row, SELECTIVE, sequence_parallel=True))
    assert none == pytest.approx(row["none"], rel=5e-3)
    assert both == pytest.approx(row["selective_and_sequence"], rel=5e-3)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["model"])
@pytest.mark.parametrize("setting", ["seq", "sel", "seqsel", "full"])
def test_percentages_of_figure_seven_come_out(row: dict[str, Any], setting: str) -> None:
    none = activations(first_rank(row, NONE))
    if setting == "full":
        some = activations(first_rank(row, FULL))
    else:
        recompute, sequence_parallel = SETTINGS[setting]
        some = activations(first_rank(row, recompute, sequence_parallel=sequence_parallel))
    assert 100 * some / none == pytest.approx(row["percent"][setting], abs=0.2)
