"""`refold fidelity` as a person runs it."""

import json
from pathlib import Path

import pytest

from tests.flows.command import refold

pytestmark = pytest.mark.whole


def test_one_source_as_tables(tmp_path: Path) -> None:
    result = refold("fidelity", "--source", "megatron-a100", "--ranges", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")
    assert max(map(len, result.stdout.splitlines())) <= 100
    for words in ("errors, projected over measured less one", "megatron-22B-full", "targets"):
        assert words in result.stdout


def test_as_json_with_plots(tmp_path: Path) -> None:
    result = refold(
        *("fidelity", "--source", "paper-points", "--source", "megatron-llama-fp8"),
        *("--gemm-backend", "tile", "--plots", "plots", "--json"),
        cwd=tmp_path,
    )
    assert (result.returncode, result.stderr) == (0, "")
    answer = json.loads(result.stdout)
    assert [each["source"] for each in answer["sources"]] == ["megatron-llama-fp8", "paper-points"]
    assert len(answer["rows"]) == 11
    for name in ("paper-points", "megatron-llama-fp8"):
        assert (tmp_path / "plots" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_rows_of_ones_own(tmp_path: Path) -> None:
    row = {
        "id": "mine",
        "model": "llama3.1_8B",
        "architecture": "llama3.1_8B",
        "gpu": "h100-sxm",
        "precision": "bf16",
        "world_size": 8,
        "gpus_per_node": 8,
        "stated": {"seq_length": 8192, "mbs": 1, "gbs": 64},
        "tokens_per_s_per_gpu": 9000,
    }
    other = row | {"id": "other", "gpu": "a-gpu-of-tomorrow"}
    (tmp_path / "mine.jsonl").write_text(f"{json.dumps(row)}\n{json.dumps(other)}\n")
    result = refold("fidelity", "--rows", "mine.jsonl", "--json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert [each["id"] for each in answer["rows"]] == ["mine"]
    reasons = [each["reason"] for each in answer["exclusions"]]
    assert reasons == ["no profile ships for its GPU (a-gpu-of-tomorrow)"]


def test_an_unknown_source_says_the_nearest(tmp_path: Path) -> None:
    result = refold("fidelity", "--source", "vtrian", cwd=tmp_path)
    assert result.returncode == 2
    assert "no source is called 'vtrian'" in result.stderr
    assert "did you mean vtrain?" in result.stderr


def test_nothing_to_compare_is_said(tmp_path: Path) -> None:
    (tmp_path / "none.jsonl").write_text("\n")
    result = refold("fidelity", "--rows", "none.jsonl", cwd=tmp_path)
    assert result.returncode == 2
    assert "no rows" in result.stderr
