"""Projected against measured memory: `python -m benchmarks.memory_fidelity`.

Run from the repository root. Reads `benchmarks/data/measured_memory.json` (facts of public runs,
with their sources and with what had to be assumed), projects every row, and writes
`docs/fidelity-memory.md`. Nothing is fitted to these rows. Three kinds of figures are compared with
what each of them counts: allocated tensors; what the allocator reserved, fragmentation included;
the device's total, with driver context and communicator buffers. Where a source does not say, its
figure is taken as allocated.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

from projection.degrees import Degrees, degrees
from projection.memory.model import MemoryModel
from projection.profiles import gpu_profile, network_profile
from projection.schedules import build
from projection.work.catalog import Catalog
from schemas.architecture import Architecture
from schemas.cluster import Cluster
from schemas.evaluation import RankMemory
from schemas.trial import NormalTrial
from schemas.workload import Precision, Workload

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "benchmarks/data/measured_memory.json"
PAGE = ROOT / "docs/fidelity-memory.md"
OUTSIDE_ALLOCATOR = ("framework_context", "communicator_buffers")
KINDS = ("allocated", "unstated", "reserved", "device")
FAR = 0.15
"""Rows further off than this are listed one by one."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One measured row beside its projection, in 2^30 bytes."""

    row: dict[str, Any]
    projected_gb: float
    rank: RankMemory

    @property
    def error(self) -> float:
        """Projected over measured, less one."""
        return self.projected_gb / float(self.row["memory_gb"]) - 1


def workload_of(row: dict[str, Any], architecture: Architecture) -> Workload:
    """The row as a workload; the trial it ran is the baseline."""
    ran = row["trial"]
    baseline = NormalTrial(
        tp=ran["tp"],
        pp=ran["pp"],
        ep=ran["ep"],
        etp=1,
        cp=ran["cp"],
        vpp=1,
        mbs=ran["mbs"],
        gbs=ran["gbs"],
        pp_schedule="1f1b",
        recompute_granularity=ran["recompute"],
        recompute_method=ran["recompute_method"],
        recompute_num_layers=ran["recompute_num_layers"],
        overlap_grad_reduce=True,
        overlap_param_gather=False,
        cross_entropy_loss_fusion=ran["loss_fusion"],
        use_distributed_optimizer=ran["distributed_optimizer"],
        use_torch_fsdp2=ran["fsdp2"],
        use_turbo_deepep=ran["deepep"],
        sync_free_stage=0,
        target_ep_size=None,
        fp8=ran["fp8"],
    )
    dropout = 0.1 if ran.get("dropout") else 0.0
    return Workload(
        name=row["id"],
        architecture=architecture,
        seq_length=row["seq_length"],
        baseline=baseline,
        precision=Precision(**row["precision"]),
        sequence_parallel=ran["sequence_parallel"],
        flash_attention=ran["flash_attention"],
        attention_dropout=dropout,
        hidden_dropout=dropout,
        force_load_balancing=True,
        source=row["source"],
    )


def cluster_of(row: dict[str, Any]) -> Cluster:
    """The machines of a row, with the GPU's shipped network."""
    gpu = gpu_profile(row["profile"])
    per_node = row["gpus_per_node"]
    used = row["trial"]["tp"] * row["trial"]["cp"] * row["trial"]["pp"] * row["trial"]["dp"]
    per_node = min(per_node, used)
    return Cluster(
        name=row["id"],
        num_nodes=max(1, used // per_node),
        gpus_per_node=per_node,
        gpu=gpu,
        network=network_profile(gpu.name),
        hbm_capacity_gb=gpu.hbm_capacity_gb,
        memory_safety_margin=0.0,
    )


def compare(row: dict[str, Any], architecture: Architecture) -> Compared:
    """Project one row and pick what its figure counts."""
    workload, cluster = workload_of(row, architecture), cluster_of(row)
    trial = workload.baseline
    sizes = degrees(trial, cluster, architecture, workload.seq_length)
    if not isinstance(sizes, Degrees):
        raise SystemExit(f"{row['id']}: {sizes.reason}")
    schedule = build(trial.pp_schedule, trial.pp, trial.vpp, sizes.num_microbatches)
    report = MemoryModel(workload, cluster, Catalog(architecture)).report(trial, sizes, schedule)
    rank = report.ranks[-1] if row["source"] == "nanotron-usp" else report.peak
    left_out = OUTSIDE_ALLOCATOR if row["kind"] != "device" else ()
    if row["kind"] in ("allocated", "unstated"):
        left_out = (*OUTSIDE_ALLOCATOR, "fragmentation")
    counted = sum(gb for name, gb in rank.components.items() if name not in left_out)
    return Compared(row, counted, rank)


def load() -> tuple[dict[str, Any], list[Compared]]:
    """The data file, and every row of it compared."""
    data = json.loads(DATA.read_text(encoding="utf-8"))
    known = {
        name: Architecture(**{**fields, "name": name})
        for name, fields in data["architectures"].items()
    }
    return data, [compare(row, known[row["architecture"]]) for row in data["rows"]]


def summary(rows: Iterable[Compared]) -> str:
    """Count, mean and median absolute error, bias and worst, as cells of a table."""
    errors = [row.error for row in rows]
    worst = max(errors, key=abs)
    sizes = [abs(error) for error in errors]
    return (
        f"{len(errors)} | {mean(sizes):.1%} | {median(sizes):.1%} | {mean(errors):+.1%} |"
        f" {worst:+.1%}"
    )


def page(data: dict[str, Any], compared: list[Compared]) -> str:
    """The page, as text."""
    by_kind: dict[str, list[Compared]] = defaultdict(list)
    by_source: dict[str, list[Compared]] = defaultdict(list)
    for one in compared:
        by_kind[one.row["kind"]].append(one)
        by_source[one.row["source"]].append(one)
    head = "| rows | mean error | median | bias | worst |"
    lines = [
        "# Projected against measured memory",
        "",
        "Written by `python -m benchmarks.memory_fidelity` from",
        "`benchmarks/data/measured_memory.json`. Nothing is fitted to these rows.",
        "Errors are projected over measured, less one.",
        "",
        "## By kind of figure",
        "",
        f"| kind {head}",
        "|---|---|---|---|---|---|",
        *(f"| {kind} | {summary(by_kind[kind])} |" for kind in KINDS if by_kind[kind]),
        "",
        "allocated: tensors. unstated: the source does not say which; compared as allocated.",
        "reserved: with fragmentation. device: with driver context and communicator buffers too.",
        "",
        "## By source",
        "",
        f"| source | kind {head}",
        "|---|---|---|---|---|---|---|",
        *(
            f"| {source} | {rows[0].row['kind']} | {summary(rows)} |"
            for source, rows in by_source.items()
        ),
        "",
        *_sources(data),
        "",
        f"## Rows more than {FAR:.0%} off",
        "",
        "| row | configuration | measured GB | projected GB | error |",
        "|---|---|---|---|---|",
        *(
            f"| {one.row['id']} | {_configuration(one.row)} | {one.row['memory_gb']:g} |"
            f" {one.projected_gb:.1f} | {one.error:+.1%} |"
            for one in sorted(compared, key=lambda one: -abs(one.error))
            if abs(one.error) > FAR
        ),
        "",
    ]
    return "\n".join(lines)


def _configuration(row: dict[str, Any]) -> str:
    ran = row["trial"]
    sizes = " ".join(f"{name.upper()}{ran[name]}" for name in ("tp", "pp", "ep", "cp", "dp", "mbs"))
    return f"{row['architecture']} {sizes} recompute {ran['recompute']} fp8 {ran['fp8']}"


def _sources(data: dict[str, Any]) -> Iterable[str]:
    yield "## What the rows are, and what was assumed of them"
    yield ""
    for name, source in data["sources"].items():
        assumed = "; ".join(source["assumed"]) or "nothing"
        yield f"- {name}: {source['title']}. Assumed: {assumed}."
    yield ""
    yield "Left out of the collection, because a projection would not be of the same thing:"
    yield ""
    for entry in data["left_out"]:
        yield f"- {entry['source']}, {entry['rows']} rows: {entry['why']}."


def main() -> None:
    """Writes the page and prints its tables."""
    data, compared = load()
    text = page(data, compared) + _notes()
    PAGE.write_text(text, encoding="utf-8")
    print(text)


def _notes() -> str:
    """What is known of the differences; kept beside the page so that both change together."""
    notes = ROOT / "benchmarks/data/measured_memory_notes.md"
    return notes.read_text(encoding="utf-8") if notes.is_file() else ""


if __name__ == "__main__":
    main()
