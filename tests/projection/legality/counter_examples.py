"""For every rule the smallest request that breaks it, and words of the sentence that refuses it."""

from dataclasses import dataclass, field
from typing import Any

from schemas.cluster import Cluster
from schemas.search import SearchSpec
from schemas.workload import Workload
from tests.builders import (
    a100,
    cluster,
    deepseek_v3,
    llama_70b,
    mixtral_8x22b,
    search,
    small_moe,
)

FREED = search(gbs=True, overlap_grad_reduce=True, overlap_param_gather=True)


def with_architecture(workload: Workload, **changes: Any) -> Workload:
    architecture = workload.architecture.model_copy(update=changes)
    return workload.model_copy(update={"architecture": architecture})


def with_precision(workload: Workload, **changes: Any) -> Workload:
    return workload.model_copy(update={"precision": workload.precision.model_copy(update=changes)})


@dataclass
class Case:
    """A request that breaks the rule `code`, and the words its reason must have."""

    code: str
    asked: dict[str, Any]
    says: str
    workload: Workload = field(default_factory=mixtral_8x22b)
    cluster: Cluster = field(default_factory=lambda: cluster(8))
    search: SearchSpec = FREED


TP_ONLY = {"ep": 1, "etp": 1, "pp": 1}

CASES = [
    Case("not_positive", {"tp": 0}, "tp = 0"),
    Case("not_positive", {"mbs": -2}, "mbs = -2"),
    Case("gbs_too_large", {"gbs": 2**25}, "gbs is above 16,777,216, the largest"),
    Case(
        "gbs_too_large",
        {"gbs": 32 * 10**21, "pp_schedule": "ilp"},
        "gbs is above 16,777,216, the largest",
    ),
    Case(
        "negative_recompute_layers",
        {"recompute_granularity": "full", "recompute_num_layers": -1},
        "recompute_num_layers = -1",
    ),
    Case("target_ep_not_positive", {"target_ep_size": 0}, "target_ep_size = 0"),
    Case("unknown_sync_free_stage", {"sync_free_stage": 7}, "the nearest is 3"),
    Case("unknown_schedule", {"pp_schedule": "zerobuble"}, "did you mean 'zero-bubble'"),
    Case(
        "zero_bubble_contradicts_schedule",
        {"pp_schedule": "1f1b", "enable_zero_bubble": True},
        "enable_zero_bubble true, but schedule 1f1b does not split",
    ),
    Case("zero_bubble_needs_one_chunk", {"enable_zero_bubble": True, "vpp": 2}, "with vpp 2"),
    Case(
        "recompute_layers_without_full",
        {"recompute_num_layers": 3},
        "recompute_granularity is none",
    ),
    Case(
        "placement_not_folded",
        {"tp": 1, "pp": 4, "ep": 8},
        "needs edp = dp, so tp·cp = etp·ep: tp·cp = 1·1 = 1, etp·ep = 1·8 = 8",
        cluster=cluster(8, placement="tp-cp-ep-pp-dp"),
    ),
    Case(
        "world_not_tiled",
        {"tp": 4, "pp": 8, "ep": 8},
        "tp·pp·ep = 4·8·8 = 256 GPUs per replica, the cluster has 64",
    ),
    Case(
        "world_not_tiled",
        {"pp": 7},
        "tp·cp·pp = 1·1·7 = 7 GPUs per replica, the cluster has 64, which leaves 1 idle",
    ),
    Case(
        "world_not_tiled",
        {"tp": 8, "pp": 16, "ep": 8, "etp": 1},
        "tp·cp·pp = 8·1·16 = 128 GPUs per replica, the cluster has 64",
    ),
    Case("ep_needs_moe", {"ep": 2}, "ep 2 on a dense model", llama_70b()),
    Case("ep_experts", {"ep": 16}, "ep 16 does not divide the 8 experts"),
    Case(
        "ep_fp16",
        {},
        "ep 8 with fp16",
        with_precision(mixtral_8x22b(), params_dtype="fp16"),
    ),
    Case(
        "cp_sequence",
        {"cp": 2, "tp": 1},
        "2·cp = 4 does not divide the sequence length 8190",
        mixtral_8x22b().model_copy(update={"seq_length": 8190}),
    ),
    Case("cp_exceeds_node", {"cp": 16}, "cp 16 is more than the 8 GPUs", llama_70b()),
    Case("cp_not_folded", {"cp": 4, "ep": 2}, "cp 4 does not fold into ep 2"),
    Case(
        "cp_heads",
        {"tp": 8, "etp": 1, "pp": 1, "cp": 8},
        "cp 8 by all-to-all does not divide 6 heads and 1 KV groups",
        mixtral_8x22b().model_copy(update={"cp_comm_type": "a2a"}),
    ),
    Case(
        "sequence_parallel_length",
        {"tp": 8, "etp": 1, "pp": 1},
        "tp·cp = 8·1 = 8 does not divide the sequence length 8196",
        mixtral_8x22b().model_copy(update={"seq_length": 8196}),
    ),
    Case(
        "tp_heads",
        TP_ONLY | {"tp": 8},
        "tp 8 does not divide the attention heads 12",
        with_architecture(mixtral_8x22b(), num_attention_heads=12, num_query_groups=4),
    ),
    Case(
        "tp_kv_groups",
        TP_ONLY | {"tp": 4},
        "tp 4 neither divides the 6 KV groups",
        with_architecture(mixtral_8x22b(), num_query_groups=6),
    ),
    Case(
        "tp_hidden",
        TP_ONLY | {"tp": 4},
        "tp 4 does not divide the hidden size 6146",
        with_architecture(mixtral_8x22b(), hidden_size=6146),
    ),
    Case(
        "tp_ffn",
        {"tp": 4},
        "tp 4 does not divide the ffn hidden size 28670",
        with_architecture(llama_70b(), ffn_hidden_size=28670),
    ),
    Case(
        "tp_shared_expert",
        TP_ONLY | {"tp": 4},
        "tp 4 does not divide the shared expert width 1022",
        with_architecture(mixtral_8x22b(), shared_expert_hidden_size=1022),
    ),
    Case(
        "tp_vocab",
        TP_ONLY | {"tp": 4},
        "tp 4 does not divide the padded vocabulary 32002",
        mixtral_8x22b().model_copy(update={"padded_vocab_size": 32002}),
    ),
    Case("tp_exceeds_node", {"tp": 16}, "tp 16 is more than the 8 GPUs of a node", llama_70b()),
    Case(
        "moe_tp_needs_sequence_parallel",
        TP_ONLY | {"tp": 2},
        "an MoE model with tp 2 needs sequence_parallel",
        mixtral_8x22b().model_copy(update={"sequence_parallel": False}),
    ),
    Case("etp_not_one_or_tp", {"tp": 8, "etp": 2}, "etp 2 is neither 1 nor tp 8"),
    Case("etp_not_one_or_tp", {"tp": 4, "etp": 2}, "etp 2 on a dense model", llama_70b()),
    Case(
        "etp_moe_ffn",
        {"tp": 4, "etp": 4, "ep": 1, "pp": 1},
        "etp 4 does not divide the expert ffn hidden size 16386",
        with_architecture(mixtral_8x22b(), moe_ffn_hidden_size=16386),
    ),
    Case("more_stages_than_layers", {"pp": 4, "vpp": 2}, "4·2 = 8 stages", small_moe()),
    Case("pp_splits_layers_unevenly", {"pp": 16, "ep": 1}, "56 is not a multiple of pp 16"),
    Case(
        "pp_splits_layers_unevenly",
        {},
        "first/last stage layers 13/even leave 43 of 56 layers for 3 ranks",
        mixtral_8x22b(first_stage_layers=13),
    ),
    Case("vpp_splits_layers_unevenly", {"vpp": 3}, "vpp 3 does not divide the 14 layers"),
    Case(
        "layout_mismatch",
        {},
        "the layout has 4 decoder layers, num_layers is 56",
        mixtral_8x22b(layout="Et|t|t|t,L"),
    ),
    Case("vpp_needs_pp", {"pp": 1, "vpp": 2}, "vpp 2 needs pp > 1"),
    Case("vpp_too_deep", {"vpp": 14}, "vpp 14 is more than 8 chunks"),
    Case(
        "schedule_vpp",
        {"pp_schedule": "zbv-formatted"},
        "schedule zbv-formatted does not run vpp 1; for that: 1f1b, zero-bubble",
    ),
    Case(
        "interleaved_microbatches",
        {"vpp": 2, "mbs": 8},
        "interleaved with 1 microbatches, fewer than pp 4",
    ),
    Case(
        "interleaved_microbatches",
        {"vpp": 2, "pp": 8, "mbs": 1, "gbs": 96},
        "interleaved with 12 microbatches, not a multiple of pp 8",
        mixtral_8x22b(gbs=96),
    ),
    Case("mbs_not_power_of_two", {"mbs": 3}, "the nearest is 2"),
    Case("mbs_not_power_of_two", {"mbs": 32}, "the nearest is 16"),
    Case("gbs_not_divisible", {"mbs": 16}, "gbs 128 is not a multiple of mbs·dp = 16·16 = 256"),
    Case("gbs_not_searched", {"gbs": 192}, "gbs 192 is not one of 128, 256, 512, 1024"),
    Case(
        "recompute_split_backward",
        {"pp_schedule": "zero-bubble", "recompute_granularity": "selective"},
        "recompute selective with schedule zero-bubble",
    ),
    Case(
        "recompute_exceeds_stage",
        {"recompute_granularity": "full", "recompute_num_layers": 15},
        "recompute_num_layers 15 is more than the 14 layers of a virtual stage",
    ),
    Case(
        "fsdp2_with_distributed_optimizer",
        {"use_torch_fsdp2": True, "use_distributed_optimizer": True},
        "exclude each other",
        llama_70b(),
    ),
    Case("fsdp2_pp", {"pp": 2}, "use_torch_fsdp2 needs pp 1, pp is 2", llama_70b()),
    Case("fsdp2_ep", {"use_torch_fsdp2": True, "pp": 1}, "needs ep 1, ep is 8"),
    Case(
        "fsdp2_tied",
        {},
        "needs untied embeddings",
        with_architecture(llama_70b(), tied_embeddings=True),
    ),
    Case("fsdp2_fp16", {}, "fp16 parameters", with_precision(llama_70b(), params_dtype="fp16")),
    Case(
        "param_gather_optimizer",
        {"use_distributed_optimizer": False, "overlap_param_gather": True},
        "overlap_param_gather needs use_distributed_optimizer",
    ),
    Case(
        "param_gather_grad_reduce",
        {"overlap_grad_reduce": False, "overlap_param_gather": True},
        "overlap_param_gather needs overlap_grad_reduce",
    ),
    Case("deepep_needs_moe", {"use_turbo_deepep": True}, "on a dense model", llama_70b()),
    Case("deepep_needs_group", {"use_turbo_deepep": True, "ep": 1}, "needs etp·ep > 1"),
    Case("sync_free_needs_moe", {"sync_free_stage": 1}, "on a dense model", llama_70b()),
    Case(
        "sync_free_contradicts_deepep",
        {"sync_free_stage": 2, "use_turbo_deepep": False},
        "sync_free_stage 2 runs on DeepEP",
    ),
    Case("target_ep_needs_moe", {"target_ep_size": 4}, "on a dense model", llama_70b()),
    Case(
        "fp8_unsupported",
        {"fp8": "hybrid"},
        "fp8 hybrid on a100-80g",
        cluster=cluster(8, gpu=a100()),
    ),
    Case(
        "fp8_delayed_mla",
        {"fp8": "delayed"},
        "runs the tensorwise recipe",
        deepseek_v3(),
        cluster(64),
    ),
    Case(
        "axis_pinned",
        {"gbs": 256},
        "gbs = 256, it is fixed to 128 by optimization.axes.gbs: false",
        search=search(),
    ),
    Case(
        "axis_pinned",
        {"pp": 8},
        "pp = 8, it is fixed to 2 by pinned.pp",
        search=search({"pp": 2}),
    ),
]
