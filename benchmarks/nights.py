"""A night over many targets of which nothing changed: how long it takes, and what memory it needs.

    python -m benchmarks.nights --folder DIR [--targets 1000]

Makes the targets (workload × cluster, each a pair of files of its own), tunes each once in a first
night, then does a second night and reports that one.
"""

import argparse
import resource
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from flows.nightly import Done, run_night
from flows.requests import NightRequest
from flows.stages import Stage, in_process

MODELS = ("llama3.1_8B", "llama3.1_70B", "mixtral_8x7B_v0.1", "qwen3_8B")
GPUS = ("mi355x", "mi325x", "h100-sxm", "mi300x")


def write_targets(folder: Path, count: int) -> Path:
    """`count` targets that differ in model, GPU, nodes or sequence length."""
    entries = []
    for number in range(count):
        here = folder / "targets" / f"{number:05d}"
        here.mkdir(parents=True, exist_ok=True)
        model, gpu = MODELS[number % 4], GPUS[number // 4 % 4]
        overrides = {
            "micro_batch_size": 1,
            "global_batch_size": 256,
            "seq_length": 2048 + 128 * (number // 16 % 32),
            "tensor_model_parallel_size": 4,
        }
        trainer = {"model": f"{model}.yaml", "overrides": overrides}
        (here / "workload.yaml").write_text(yaml.safe_dump({"modules": {"pre_trainer": trainer}}))
        nodes = 4 * (1 + number // 512)
        cluster = {"target_cluster": {"name": f"pod{number}", "num_nodes": nodes, "gpu_arch": gpu}}
        (here / "cluster.yaml").write_text(yaml.safe_dump(cluster))
        files = {name: f"targets/{here.name}/{name}.yaml" for name in ("workload", "cluster")}
        entries.append(
            {
                "name": here.name,
                "workload": files["workload"],
                "target_cluster": files["cluster"],
            }
        )
    path = folder / "targets.yaml"
    defaults = {"seed_only": True, "gemm_backend": "tile", "seed_budget": 1}
    path.write_text(yaml.safe_dump({"defaults": defaults, "targets": entries}))
    return path


def but_export(name: str, step: Callable[..., Any], *args: Any) -> Any:
    """The first night is not what is measured: it draws no pictures."""
    return None if name == "export" else step(*args)


def main() -> None:
    """Prints the figures of the second night."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--targets", type=int, default=1000)
    asked = parser.parse_args()
    targets = write_targets(asked.folder, asked.targets)

    def night(day: int, stage: Stage = in_process) -> Done:
        request = NightRequest(
            targets=targets, store=str(asked.folder / "store"), out_dir=asked.folder / "out"
        )
        now = datetime(2026, 3, day, 3, tzinfo=UTC)
        start, cpu = time.perf_counter(), time.process_time()
        done = run_night(request, stage=stage, clock=lambda: now)
        wall, cpu = time.perf_counter() - start, time.process_time() - cpu
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        outcomes = done.night.finished.outcomes if done.night.finished else {}
        print(f"night {day}: {outcomes}, {wall:.1f} s, {cpu:.1f} s CPU, peak {peak:.0f} MiB so far")
        return done

    night(1, but_export)
    night(2)


if __name__ == "__main__":
    main()
