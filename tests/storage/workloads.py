"""Workloads for the tests of the exports: what `resolve` would make of a file like theirs."""

from typing import Any

from schemas.architecture import Architecture
from schemas.trial import NormalTrial
from schemas.workload import Workload
from tests.storage.builders import normal_trial


def architecture(*, moe: bool = True) -> Architecture:
    """Mixtral 8x22B's widths on 56 layers, or the same without experts."""
    experts: dict[str, Any] = {}
    if moe:
        experts = {
            "num_experts": 8,
            "moe_router_topk": 2,
            "moe_ffn_hidden_size": 16384,
            "moe_layers": (True,) * 56,
        }
    return Architecture(
        name="mixtral",
        num_layers=56,
        hidden_size=6144,
        ffn_hidden_size=16384,
        num_attention_heads=48,
        num_query_groups=8,
        kv_channels=128,
        vocab_size=32768,
        **experts,
    )


def workload(
    *, moe: bool = True, baseline: NormalTrial | None = None, **overrides: Any
) -> Workload:
    """A workload whose document holds `overrides`, and keys that Refold does not use."""
    document = {
        "modules": {
            "pre_trainer": {
                "overrides": {
                    "train_iters": 50,
                    "wandb_project": "mine",
                    "tensor_model_parallel_size": 1,
                    "micro_batch_size": 2,
                    **overrides,
                },
                "model": "mixtral_8x22B.yaml",
                "framework": "megatron",
                "config": "pre_trainer.yaml",
            },
            "other_module": {"b": 1, "a": [1, {"y": 2, "x": 3}]},
        },
        "my_own_key": {"kept": True},
        "exp_name": "mixtral",
        "work_group": "amd",
    }
    return Workload(
        name="mixtral",
        architecture=architecture(moe=moe),
        seq_length=8192,
        baseline=baseline or normal_trial(),
        source="mixtral.yaml",
        document=document,
        warnings=("mixtral.yaml:3: tran_iters is not a key; did you mean train_iters?",),
    )
