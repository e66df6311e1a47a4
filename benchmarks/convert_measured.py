"""Measured tables of others as rows of `tasks/evidence/rows/`.

`python -m benchmarks.convert_measured FOLDER [OUT]`: FOLDER holds `paper_measured.json`,
`megatron_a100.json`, `vtrain_a100_single_node_sample.csv` and `public_measured_sample.jsonl`. Only
facts are taken over: what ran, what was measured, who published it. What a source leaves unstated
is not filled in here but by the rules of `tasks/evidence/assumptions.yaml`. Rows that several files
print are merged.
"""

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.public_rows import public_rows

OUT = Path(__file__).resolve().parents[1] / "tasks/evidence/rows"
PAPER = "arXiv 2610.19423v1"
MEASURED = ("iteration_ms", "tokens_per_s_per_gpu")
Row = dict[str, Any]
POINT_SETTINGS = {
    "mbs": "mbs",
    "gbs": "gbs",
    "seq_length": "seq_length",
    "tp": "tp",
    "pp": "pp",
    "ep": "ep",
    "cp": "cp",
    "vpp": "vpp",
    "fsdp2": "use_torch_fsdp2",
    "deepep": "use_turbo_deepep",
    "recompute": "recompute_granularity",
    "distributed_optimizer": "use_distributed_optimizer",
    "sync_free_stage": "sync_free_stage",
}
PRESET_OF = {"qwen3_235B_A22B": "qwen3_235B_A22B", "gpt_oss_120B": "gpt_oss_120B-full-attention"}


def paper_rows(data: Row) -> Iterator[Row]:
    """The measured points and the rank sweeps."""
    for point in data["points"]:
        yield {
            "id": point["id"],
            "source": "paper-points",
            "citation": f"{PAPER}, tables 1-11 and 17",
            "quality": "A" if {"mbs", "gbs", "gpu"} <= point.keys() else "B",
            **_paper_machine(point),
            "stated": _paper_settings(point),
            "tokens_per_s_per_gpu": point["measured"],
        }
    for name, sweep in data["rank_sweeps"].items():
        if sweep.get("measured_unknown"):
            continue
        for row in sweep["rows"]:
            yield {
                "id": f"{name}-{row['tag']}",
                "source": f"paper-sweep-{name}",
                "citation": f"{PAPER}, tables 18-20",
                "quality": "B",
                **_paper_machine(sweep),
                "sweep": name,
                "stated": _fixed(name) | _paper_settings(row),
                "tokens_per_s_per_gpu": row["measured"],
            }


def _fixed(sweep: str) -> Row:
    """What the heading of a sweep states of all its rows."""
    return {
        "mixtral22b-32gpu": {"tp": 1, "pp": 4, "ep": 8},
        "qwen3-235b-32gpu": {"tp": 1, "ep": 8, "cp": 1, "seq_length": 4096},
        "gpt-oss-120b-64gpu": {},
    }[sweep]


def _paper_machine(row: Row) -> Row:
    model = row["model"]
    return {
        "model": model,
        "architecture": PRESET_OF.get(model, model),
        "gpu": row.get("gpu", "mi355x"),
        "precision": row["precision"],
        "world_size": row["num_gpus"],
        "gpus_per_node": 8,
        "framework": "Primus (Megatron-LM)",
    }


def _paper_settings(row: Row) -> Row:
    stated = {ours: row[theirs] for theirs, ours in POINT_SETTINGS.items() if theirs in row}
    if row.get("schedule") == "zbv":
        stated["pp_schedule"] = "zbv-formatted"
    if "recompute_num_layers" in row:
        layers = row["recompute_num_layers"]
        stated["recompute_num_layers"] = layers
        stated["recompute_granularity"] = "full" if layers else "none"
    if stated.get("recompute_granularity") == "none":
        stated["recompute_num_layers"] = 0
    return stated


def megatron_rows(data: Row) -> Iterator[Row]:
    """Iteration times of Korthikanti et al. 2022, table 5."""
    presets = {
        "megatron-22B": "gpt3_22B",
        "gpt3-175B": "gpt3_175B",
        "turing-530B": "gpt3_529.6B",
        "megatron-1T": "gpt3_1T",
    }
    for row in data["rows"]:
        for how, seconds in row["iteration_s"].items():
            full = how.startswith("full")
            recompute: Row = {"recompute_granularity": "full" if full else "selective"}
            if not full:
                recompute["recompute_modules"] = ["core_attn"]
            yield {
                "id": f"{row['model']}-{'full' if full else 'selective'}",
                "source": "megatron-a100",
                "citation": "Korthikanti et al. 2022, arXiv 2205.05198, table 5",
                "quality": "A",
                "model": presets[row["model"]],
                "architecture": presets[row["model"]],
                "gpu": row["gpu"],
                "precision": row["precision"],
                "world_size": row["num_gpus"],
                "gpus_per_node": 8,
                "framework": "Megatron-LM (2022)",
                "stated": {
                    **{name: row[name] for name in ("tp", "pp", "vpp", "mbs", "gbs", "seq_length")},
                    "ep": 1,
                    "cp": 1,
                    "pp_schedule": "interleaved" if row["vpp"] > 1 else "1f1b",
                    "sequence_parallel": not full,
                    "flash_attention": False,
                    "use_distributed_optimizer": row["distributed_optimizer"],
                    **recompute,
                },
                "iteration_ms": seconds * 1000,
            }


def vtrain_rows(path: Path) -> Iterator[Row]:
    """Iteration times of small GPT models on one node of A100."""
    with path.open(encoding="utf-8", newline="") as file:
        lines = [line for line in csv.reader(file) if not line[0].startswith("#")]
    for at, line in enumerate(lines):
        world, gbs, mbs, hidden, _, layers, seq, tp, dp, pp = map(int, line[:10])
        if tp * dp * pp != world:
            raise SystemExit(f"vtrain row {at}: tp·dp·pp is not {world}")
        name = f"gpt-h{hidden}-l{layers}"
        yield {
            "id": f"vtrain-{at:04d}",
            "source": "vtrain",
            "citation": "vTrain (Bang et al., MICRO 2024), one node of A100",
            "quality": "A",
            "model": name,
            "architecture": name,
            "gpu": "a100-80g",
            "precision": "fp16",
            "world_size": world,
            "gpus_per_node": world,
            "framework": "Megatron (vTrain)",
            "sweep": f"{name}, {world} GPUs, batch {gbs}",
            "stated": {
                **{"tp": tp, "pp": pp, "mbs": mbs, "gbs": gbs, "seq_length": seq},
                "ep": 1,
                "cp": 1,
                "vpp": 1,
            },
            "iteration_ms": float(line[10]),
        }


def merged(rows: list[Row]) -> list[Row]:
    """Rows of the same machines, model and figure, whose settings do not contradict, as one.

    The first keeps its place; what only the other states is added.
    """
    kept: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        key = (
            *(row["model"], row["gpu"], row["precision"], row["world_size"]),
            *(row.get(name) for name in MEASURED),
            # Without a time there is nothing to recognise a row by.
            row["id"] if all(row.get(name) is None for name in MEASURED) else None,
        )
        same = next(
            (one for one in kept.get(key, []) if _agree(one["stated"], row["stated"])), None
        )
        if same is None:
            kept.setdefault(key, []).append(dict(row))
        else:
            same["stated"] = row["stated"] | same["stated"]
            same["also"] = [*same.get("also", []), row["id"]]
            same["quality"] = min(same["quality"], row["quality"])
    return [row for rows in kept.values() for row in rows]


def _agree(one: Row, other: Row) -> bool:
    return all(one[name] == other[name] for name in one.keys() & other.keys())


def main() -> None:
    folder, out = Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else OUT
    read = lambda name: json.loads((folder / name).read_text(encoding="utf-8"))  # noqa: E731
    rows = [
        *paper_rows(read("paper_measured.json")),
        *megatron_rows(read("megatron_a100.json")),
        *vtrain_rows(folder / "vtrain_a100_single_node_sample.csv"),
        *public_rows(folder / "public_measured_sample.jsonl"),
    ]
    files: dict[str, list[Row]] = {}
    for row in merged(rows):
        files.setdefault(_file(row["source"]), []).append(row)
    out.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in content)
        (out / f"{name}.jsonl").write_text(lines, encoding="utf-8")
        print(f"{name}: {len(content)} rows")


def _file(source: str) -> str:
    return "paper" if source.startswith("paper") else source


if __name__ == "__main__":
    main()
