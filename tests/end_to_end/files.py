"""Input files as a user hands them in, written into a test's own folder."""

from pathlib import Path
from typing import Any

import yaml


def write_inputs(
    folder: Path, *, nodes: int = 4, overrides: dict[str, Any] | None = None, **cluster: Any
) -> tuple[Path, Path]:
    """`workload.yaml` (Mixtral 8x22B) and `cluster.yaml` (MI355X) in `folder`; their paths.

    `overrides` go over the workload's own, `cluster` holds further top-level sections.
    """
    workload = folder / "workload.yaml"
    target = folder / "cluster.yaml"
    settings = {
        "micro_batch_size": 2,
        "global_batch_size": 128,
        "seq_length": 8192,
        "tensor_model_parallel_size": 1,
        "pipeline_model_parallel_size": 4,
        "expert_model_parallel_size": 8,
        "overlap_grad_reduce": True,
        "overlap_param_gather": True,
        "moe_router_force_load_balancing": True,
        **(overrides or {}),
    }
    trainer = {
        "framework": "megatron",
        "config": "pre_trainer.yaml",
        "model": "mixtral_8x22B_v0.1.yaml",
        "overrides": settings,
    }
    workload.write_text(
        yaml.safe_dump(
            {
                "work_group": "${PRIMUS_TEAM:amd}",
                "exp_name": "mixtral-pretrain",
                "modules": {"pre_trainer": trainer},
            }
        )
    )
    sections: dict[str, Any] = {
        "target_cluster": {"name": "pod", "num_nodes": nodes, "gpu_arch": "mi355x"},
        "optimization": {"hbm_capacity_gb": 288.0},
    }
    for name, values in cluster.items():
        sections[name] = {**sections.get(name, {}), **values}
    target.write_text(yaml.safe_dump(sections))
    return workload, target
