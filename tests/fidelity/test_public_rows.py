"""A collection's rows in our form: what is stated carries over, what is not stays unstated."""

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.convert_measured import merged
from benchmarks.public_rows import public_rows
from tasks.evidence import read_rows
from tasks.fidelity.cases import left_out

ROW: dict[str, Any] = {
    "id": "one",
    "source_id": "somebody",
    "source": "a table",
    "source_ref": "line 3",
    "gpu": "H100-80GB",
    "num_gpus": 16,
    "gpus_per_node": 8,
    "model": "llama-like-3B",
    **{"layers": 28, "hidden": 3072, "ffn": 8192, "heads": 32, "kv_heads": 32, "head_dim": 96},
    **{"vocab": 131072, "seq": 4096, "arch_notes": "tied embeddings; MHA"},
    "task": "pretrain",
    "framework": "nanotron",
    "precision": "BF16",
    **{"tp": 2, "pp": 2, "vpp": 1, "ep": 1, "cp": 1, "dp": 4, "mbs": 1, "gbs": 256},
    "recompute": "none",
    "sequence_parallel": True,
    "zero_fsdp": "ZeRO-1",
    "schedule": "1F1B",
    "metric": "step_time_s",
    "value": 2.5,
    "extra": {},
    "quality": "B",
    "notes": "4x100Gb RoCE per node",
    "derived": {},
}


def convert(folder: Path, **changes: Any) -> dict[str, Any]:
    path = folder / "collection.jsonl"
    path.write_text(json.dumps(ROW | changes) + "\n")
    (row,) = public_rows(path)
    return row


def test_what_is_stated_carries_over(tmp_path: Path) -> None:
    row = convert(tmp_path)
    assert row["iteration_ms"] == 2500
    assert (row["gpu"], row["precision"], row["world_size"]) == ("h100-sxm", "bf16", 16)
    assert row["stated"] == {
        **{"tp": 2, "pp": 2, "ep": 1, "cp": 1, "vpp": 1, "mbs": 1, "gbs": 256, "seq_length": 4096},
        **{"sequence_parallel": True, "recompute_granularity": "none", "recompute_num_layers": 0},
        **{"use_torch_fsdp2": False, "use_distributed_optimizer": True, "pp_schedule": "1f1b"},
        **{"nics_per_node": 4, "pod_bw": 12.5, "cluster_bw": 12.5},
    }


@pytest.mark.parametrize("words", [None, "as the moon wills"])
@pytest.mark.parametrize("field", ["recompute", "zero_fsdp", "schedule"])
def test_words_nobody_knows_and_nulls_state_nothing(
    tmp_path: Path, field: str, words: str | None
) -> None:
    known = convert(tmp_path)["stated"].keys()
    assert convert(tmp_path, **{field: words})["stated"].keys() < known


def test_a_converted_row_can_be_read_and_compared(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps(convert(tmp_path)) + "\n")
    (row,) = read_rows(tmp_path / "rows.jsonl")
    assert left_out(row) is None
    assert row.architecture is not None
    assert (row.architecture.kv_channels, row.architecture.tied_embeddings) == (96, True)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"task": "LoRA SFT"}, "not pretraining (LoRA)"),
        ({"zero_fsdp": "HSDP replicate 2 x shard 8"}, "sharding that is not expressible"),
        ({"recompute": "per-op SAC"}, "recompute that is not expressible"),
        ({"arch_notes": "hybrid: 54 mamba2"}, "layers that are no transformer's"),
        ({"metric": "oom"}, "ran out of memory"),
    ],
)
def test_what_is_something_else_says_so(tmp_path: Path, changes: Any, says: str) -> None:
    assert convert(tmp_path, **changes)["not_comparable"].startswith(says)


def test_one_run_in_two_files_is_one_row_with_what_either_states(tmp_path: Path) -> None:
    first = convert(tmp_path)
    second = {**first, "id": "two", "stated": {"tp": 2, "overlap_grad_reduce": True}}
    (row,) = merged([first, second])
    assert (row["id"], row["also"]) == ("one", ["two"])
    assert row["stated"] == first["stated"] | {"overlap_grad_reduce": True}


def test_other_settings_or_figures_are_another_run(tmp_path: Path) -> None:
    first = convert(tmp_path)
    slower = {**first, "iteration_ms": 2600}
    wider = {**first, "stated": {**first["stated"], "tp": 4}}
    unknown = {**first, "iteration_ms": None}
    assert len(merged([first, slower, wider, unknown, {**unknown, "id": "two"}])) == 5
