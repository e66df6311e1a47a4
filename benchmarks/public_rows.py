"""Public measurements, collected with every field read from its source, as rows of our own form.

`python -m benchmarks.public_rows COLLECTION.jsonl > rows.jsonl`, then `refold fidelity --rows
rows.jsonl`: a collection in the same form that nobody here has seen.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]
GPUS = {
    "A100-80GB": "a100-80g",
    "H100-80GB": "h100-sxm",
    "H200-141GB": "h200",
    "B200": "b200",
    "GB200": "gb200",
    "MI300X": "mi300x",
    "MI325X": "mi325x",
    "MI350X": "mi350x",
    "MI355X": "mi355x",
}
MODELS = {
    "gpt-oss-120b": "gpt_oss_120B",
    "gpt-oss-20b": "gpt_oss_20B",
    "qwen3-30b-a3b": "qwen3_30B_A3B",
    "qwen3-235b-a22b": "qwen3_235B_A22B",
    "qwen3-8b": "qwen3_8B",
    "qwen2.5-7b": "qwen2.5_7B",
    "qwen2.5-72b": "qwen2.5_72B",
    "llama3-8b": "llama3.1_8B",
    "llama3.1-8b": "llama3.1_8B",
    "llama3-70b": "llama3.1_70B",
    "llama3.1-70b": "llama3.1_70B",
    "llama3.1-405b": "llama3.1_405B",
    "llama2-7b": "llama2_7B",
    "llama2-13b": "llama2_13B",
    "llama2-70b": "llama2_70B",
    "gpt3-175b": "gpt3_175B",
    "deepseek-v3": "deepseek_v3",
    "deepseek-v2-lite": "deepseek_v2_lite",
    "mixtral-8x22b": "mixtral_8x22B_v0.1",
    "mixtral-8x7b": "mixtral_8x7B_v0.1",
}
"""Names under which the same model is kept; Llama 3 and 3.1 of one size are one architecture."""
PRECISIONS = {
    "BF16": "bf16",
    "BF16 (amp)": "bf16",
    "FP16": "fp16",
    "FP8": "fp8",
    "FP8-CS": "fp8",
    "FP8 tensorwise": "fp8",
    "FP8 hybrid delayed (first/last layer BF16)": "fp8",
    "FP8 (float8)": "fp8",
    "BF16+float8 linear": "fp8",
    "float8 rowwise": "fp8",
    "float8 tensorwise": "fp8",
    "MXFP8": "mxfp8",
    "FP8-MX": "mxfp8",
}
FP8_RECIPES = {
    "FP8-CS": "tensorwise",
    "FP8 tensorwise": "tensorwise",
    "float8 tensorwise": "tensorwise",
    "FP8 hybrid delayed (first/last layer BF16)": "delayed",
}
SCHEDULES = {
    "1F1B": "1f1b",
    "1F1B (DeepSpeed pipeline)": "1f1b",
    "no PP": "1f1b",
    "ZBV": "zbv-formatted",
    "V-Half": "zbv-greedy-half",
    "V-Min": "zbv-greedy-min",
    "zero-bubble zbb": "zero-bubble",
    "ZB-1P (zero-bubble)": "zero-bubble",
}
NICS = {
    "4x100Gb RoCE per node": (4, 12.5),
    "4x OmniPath": (4, 12.5),
    "800 Gbps per node": (4, 25.0),
    "400 Gbps per node": (4, 12.5),
}
"""NICs per node and GB/s of each, by what the notes say of the network."""
FLAG_WORDS = {"True": True, "False": False}
"""Scripts state flags as text."""
FRAMEWORK_FLAGS = {
    "tp_comm_overlap": "tp_comm_overlap",
    "TP_COMM_OVERLAP": "tp_comm_overlap",
    "overlap_grad_sync": "overlap_grad_reduce",
    "OVERLAP_GRAD_REDUCE": "overlap_grad_reduce",
    "overlap_param_sync": "overlap_param_gather",
    "OVERLAP_PARAM_GATHER": "overlap_param_gather",
    "expert_tensor_parallel_size": "etp",
    "FP8_PARAM_GATHER": "fp8_param_gather",
    "FP8_PARAMS": "fp8_param_gather",
}
MEMORY_KINDS = {
    "nvidia-smi": "device",
    "torch max_memory_reserved (GiB, torchtitan metric)": "reserved",
    "percent of 288 GB (rocm-smi style) converted": "device",
}


def public_rows(path: Path) -> Iterator[Row]:
    """Every row of a collection in JSON lines, usable or not; what cannot be used says why."""
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield {name: value for name, value in _row(row).items() if value not in (None, "", [])}


def _row(row: Row) -> Row:
    model, architecture = _model(row)
    return {
        "id": row["id"],
        "source": row["source_id"],
        "citation": f"{row['source']}: {row['source_ref']}",
        "quality": row["quality"],
        "model": model,
        "architecture": architecture,
        "gpu": GPUS.get(row["gpu"], row["gpu"]),
        "precision": PRECISIONS.get(row.get("precision"), row.get("precision")) or "unstated",
        "world_size": row["num_gpus"],
        "gpus_per_node": min(row.get("gpus_per_node") or 8, row["num_gpus"]),
        "framework": row["framework"],
        "sweep": _sweep(row, model),
        "stated": _stated(row),
        **_measured(row),
        "not_comparable": _not_comparable(row),
    }


def _sweep(row: Row, model: str) -> str | None:
    """Rows of one table, model, machine and batch."""
    if row.get("gbs") is None:
        return None
    precision = PRECISIONS.get(row.get("precision"), "")
    return f"{model}, {row['num_gpus']} {row['gpu']} {precision}, batch {row['gbs']}"


def _model(row: Row) -> tuple[str, Any]:
    """The model's name, and its architecture: a key, or fields."""
    name, notes = row["model"], row.get("arch_notes") or ""
    needed = ("layers", "hidden", "ffn", "heads", "kv_heads", "vocab")
    if "hybrid" in notes or any(row.get(each) is None for each in needed):
        return MODELS.get(name, name), None
    if name in MODELS:
        return MODELS[name], MODELS[name]
    if name.startswith("grok1"):
        return name, {"preset": "grok1", "name": name, "num_layers": row["layers"]}
    if name.startswith("llama3.1-405b"):
        changes = {"num_layers": row["layers"], "num_query_groups": row["kv_heads"]}
        return name, {"preset": "llama3.1_405B", "name": name, **changes}
    heads = row["heads"]
    fields = {
        "name": name,
        "num_layers": row["layers"],
        "hidden_size": row["hidden"],
        "ffn_hidden_size": row["ffn"],
        "num_attention_heads": heads,
        "num_query_groups": row["kv_heads"],
        "kv_channels": row.get("head_dim") or row["hidden"] // heads,
        "vocab_size": row["vocab"],
        "tied_embeddings": "tied embeddings" in notes and "untied" not in notes,
    }
    if row.get("experts"):
        fields |= {
            "num_experts": row["experts"],
            "moe_router_topk": row["topk"],
            "moe_ffn_hidden_size": row["moe_ffn"],
            "moe_layers": [True] * row["layers"],
        }
    plain = {"gated_mlp": False, "normalization": "LayerNorm"}
    if "non-gated" in notes:
        fields |= plain
    if "learned positions" in notes:
        fields["learned_positions"] = row["seq"]
    if name.startswith("BLOOM-like"):
        biases = {"add_bias_linear": True, "add_qkv_bias": True, "tied_embeddings": True}
        return f"{name} {row['layers']}x{row['hidden']}x{heads}", fields | plain | biases
    return name, fields


def _stated(row: Row) -> Row:
    extra = row.get("config_extra") or {}
    stated: Row = {
        name: row[name]
        for name in ("tp", "pp", "ep", "cp", "vpp", "mbs", "gbs")
        if row.get(name) is not None
    }
    if row.get("seq") is not None:
        stated["seq_length"] = row["seq"]
    if row.get("sequence_parallel") is not None:
        stated["sequence_parallel"] = row["sequence_parallel"]
    stated |= _recompute(row.get("recompute"))
    stated |= _sharding(row.get("zero_fsdp"))
    stated |= _schedule(row)
    stated |= _graphs(extra)
    stated |= {
        ours: FLAG_WORDS.get(str(extra[theirs]), extra[theirs])
        for theirs, ours in FRAMEWORK_FLAGS.items()
        if theirs in extra
    }
    if row.get("precision") in FP8_RECIPES:
        stated["fp8_recipe"] = FP8_RECIPES[row["precision"]]
    if row.get("precision") == "FP16":
        stated["params_dtype"] = "fp16"
    if extra.get("bf16_optimizer_states"):
        stated |= {"exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"}
    if extra.get("moe_flex_dispatcher_backend") or extra.get("dispatcher") in (
        "DeepEP",
        "HybridEP",
    ):
        stated["use_turbo_deepep"] = True
    if (dispatcher := str(extra.get("dispatcher", "")).lower()) in ("alltoall", "allgather"):
        stated["moe_dispatcher"] = dispatcher
    if extra.get("feature_stage") == "+LossFusion":
        stated["cross_entropy_loss_fusion"] = True
    elif str(extra.get("feature_stage", "")).startswith("baseline"):
        stated["cross_entropy_loss_fusion"] = False
    notes = row.get("notes") or ""
    if "force-balanced" in notes or extra.get("moe_pad_to_capacity"):
        stated["force_load_balancing"] = True
    for words, (nics, rate) in NICS.items():
        if words in notes:
            stated |= {"nics_per_node": nics, "pod_bw": rate, "cluster_bw": rate}
    return stated


def _recompute(words: str | None) -> Row:
    if words is None or words.startswith(("selective AC", "per-op")):
        return {}
    if words.startswith("none"):
        return {"recompute_granularity": "none", "recompute_num_layers": 0}
    if words.startswith("full"):
        every = {"recompute_method": "uniform", "recompute_num_layers": 1}
        return {"recompute_granularity": "full", **every}
    if not words.startswith("selective"):
        return {}
    parts = words.partition(":")[2].replace("+", ",").split(",")
    modules = [part.split("(")[0].strip() for part in parts]
    found: Row = {"recompute_granularity": "selective"}
    return found | ({"recompute_modules": modules} if any(modules) else {})


def _sharding(words: str | None) -> Row:
    if words is None:
        return {}
    if words.startswith(("ZeRO-0", "none")):
        ours = {"use_torch_fsdp2": False}
        return ours | ({"use_distributed_optimizer": False} if words.startswith("ZeRO") else {})
    if words.startswith(("FSDP", "Megatron-FSDP")):
        return {"use_torch_fsdp2": True, "use_distributed_optimizer": False}
    if words.startswith("ZeRO-1") or "distributed optimizer" in words:
        return {"use_torch_fsdp2": False, "use_distributed_optimizer": True}
    return {}


def _graphs(extra: Row) -> Row:
    """What CUDA graphs replay, as Megatron-Bridge and the MLPerf scripts state it."""
    if extra.get("FULL_CUDA_GRAPH") == "1":
        return {"cuda_graphs": ["full_iteration"]}
    if "MCORE_CUDA_GRAPH" in extra:
        return {"cuda_graphs": ["layer"] if extra["MCORE_CUDA_GRAPH"] == "1" else []}
    how, scope = extra.get("cuda_graph_impl"), extra.get("cuda_graph_scope")
    if how is None:
        return {}
    if how == "none":
        return {"cuda_graphs": []}
    if "full_iteration" in (how, scope):
        return {"cuda_graphs": ["full_iteration"]}
    return {"cuda_graphs": scope or ["layer"]}


def _schedule(row: Row) -> Row:
    words = row.get("schedule")
    if words is None:
        return {}
    if "layout Et|(tt|)*30L" in words:
        return {"pp_schedule": "interleaved", "layout": "Et|" + "tt|" * 30 + "L"}
    if words.startswith("interleaved"):
        layers, chunks = row.get("layers"), row["pp"] * (row.get("vpp") or 1)
        counted = "embedding & loss counted as pipeline layers" in (row.get("notes") or "")
        if counted and layers and layers % chunks and (layers + 2) % chunks == 0 and chunks > 1:
            inner = (layers + 2) // chunks
            ends = f"t*{inner - 1}" if inner > 1 else ""
            middle = f"t*{inner}|" * (chunks - 2)
            return {"pp_schedule": "interleaved", "layout": f"E{ends}|{middle}{ends},L".lstrip(",")}
        return {"pp_schedule": "interleaved"}
    return {"pp_schedule": SCHEDULES[words]} if words in SCHEDULES else {}


def _measured(row: Row) -> Row:
    measured: Row = {}
    if row["metric"] == "tokens_per_s_per_gpu":
        measured["tokens_per_s_per_gpu"] = row["value"]
    elif row["metric"] == "step_time_s":
        measured["iteration_ms"] = row["value"] * 1000
    elif row["metric"] == "mfu" and "divided by TP" not in (row.get("notes") or ""):
        measured["tokens_per_s_per_gpu"] = (row.get("extra") or {}).get("tokens_per_s_per_gpu")
    derived = row.get("derived") or {}
    if derived.get("memory_gb_as_printed") is not None:
        measured["memory_gb"] = derived["memory_gb_as_printed"]
        measured["memory_kind"] = MEMORY_KINDS.get(derived["memory_kind"], "unstated")
    return measured


def _not_comparable(row: Row) -> str | None:
    """Why a projection of this run would be of something else."""
    sharding, recompute = row.get("zero_fsdp") or "", row.get("recompute") or ""
    if row["metric"] == "oom":
        return "ran out of memory"
    if row.get("task", "pretrain") != "pretrain":
        return "not pretraining (LoRA)"
    if "hybrid" in (row.get("arch_notes") or ""):
        return "layers that are no transformer's (Mamba)"
    if sharding.startswith("HSDP") or "never" in sharding:
        return "sharding that is not expressible (HSDP, no resharding)"
    if recompute.startswith(("selective AC", "per-op")):
        return "recompute that is not expressible (per operator)"
    if (row.get("config_extra") or {}).get("cpu_offloading_num_layers"):
        return "activations offloaded to the host"
    if row["source_id"] == "primus-pipeline-blog":
        return "batch, sequence and layers not stated: ratios only (fidelity-schedules.md)"
    return None


def main() -> None:
    for row in public_rows(Path(sys.argv[1])):
        print(json.dumps(row, ensure_ascii=False))


if __name__ == "__main__":
    main()
