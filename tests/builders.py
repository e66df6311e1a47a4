"""Workloads and clusters for tests, with the figures of published models and recipes.

Every builder takes changes to the baseline as keywords: `mixtral_8x22b(mbs=1)`.
"""

from typing import Any

from schemas.architecture import Architecture
from schemas.cluster import Cluster, Network
from schemas.gpu import GpuProfile
from schemas.search import AxisToggles, SearchSpec
from schemas.trial import NormalTrial
from schemas.workload import Precision, Workload

PLAIN = NormalTrial(
    tp=1,
    pp=1,
    ep=1,
    etp=1,
    cp=1,
    vpp=1,
    mbs=1,
    gbs=128,
    pp_schedule="1f1b",
    recompute_granularity="none",
    recompute_method=None,
    recompute_num_layers=0,
    overlap_grad_reduce=True,
    overlap_param_gather=True,
    cross_entropy_loss_fusion=True,
    use_distributed_optimizer=True,
    use_torch_fsdp2=False,
    use_turbo_deepep=False,
    sync_free_stage=0,
    target_ep_size=None,
    fp8="none",
)
"""No parallelism but data parallelism, no recompute, BF16, ZeRO-1."""


def trial(**knobs: Any) -> NormalTrial:
    """`PLAIN` with `knobs` in place of its own."""
    return PLAIN.model_copy(update=knobs)


def workload(architecture: Architecture, baseline: NormalTrial, **fields: Any) -> Workload:
    """A workload of `architecture` whose file says `baseline`."""
    given = {"name": architecture.name, "seq_length": 8192, "source": f"{architecture.name}.yaml"}
    return Workload(architecture=architecture, baseline=baseline, **{**given, **fields})


def mixtral_architecture(num_layers: int = 56) -> Architecture:
    """Mixtral 8x22B: 8 experts, top-2, every layer MoE."""
    return Architecture(
        name="mixtral_8x22B_v0.1",
        num_layers=num_layers,
        hidden_size=6144,
        ffn_hidden_size=16384,
        num_attention_heads=48,
        num_query_groups=8,
        kv_channels=128,
        vocab_size=32000,
        num_experts=8,
        moe_router_topk=2,
        moe_ffn_hidden_size=16384,
        moe_layers=(True,) * num_layers,
    )


def mixtral_8x22b(**knobs: Any) -> Workload:
    """Mixtral 8x22B as its MI355X recipe runs it: PP 4, EP 8, mbs 2, gbs 128, sequence 8192."""
    recipe = trial(pp=4, ep=8, mbs=2, gbs=128)
    return workload(
        mixtral_architecture(), recipe.model_copy(update=knobs), force_load_balancing=True
    )


def llama_70b(**knobs: Any) -> Workload:
    """Llama 3.1 70B as its FSDP2 recipe runs it: no model parallelism, 30 layers recomputed."""
    architecture = Architecture(
        name="llama3.1_70B",
        num_layers=80,
        hidden_size=8192,
        ffn_hidden_size=28672,
        num_attention_heads=64,
        num_query_groups=8,
        kv_channels=128,
        vocab_size=128256,
    )
    recipe = trial(
        use_torch_fsdp2=True,
        use_distributed_optimizer=False,
        overlap_param_gather=False,
        recompute_granularity="full",
        recompute_method="block",
        recompute_num_layers=30,
    )
    return workload(architecture, recipe.model_copy(update=knobs))


DEEPSEEK_LAYOUT = "Et*1|t*1|" + "t*2|" * 29 + "t*1,L"
"""61 layers over 32 virtual stages, as the PP 16 × VPP 2 recipe lays them out."""


DEEPSEEK_RECOMPUTED = (
    *(0, 3, 4, 7, 8, 11, 12, 15, 19, 23),
    *(31, 32, 35, 36, 39, 40, 43, 44, 47, 48, 51),
)
"""The layers that recipe recomputes."""


def deepseek_v3(**knobs: Any) -> Workload:
    """DeepSeek V3 as its MI355X recipe runs it: PP 16, VPP 2 by layout, EP 8, MLA, DeepEP."""
    architecture = Architecture(
        name="deepseek_v3",
        num_layers=61,
        hidden_size=7168,
        ffn_hidden_size=18432,
        num_attention_heads=128,
        num_query_groups=128,
        kv_channels=128,
        vocab_size=129280,
        attention="mla",
        q_lora_rank=1536,
        kv_lora_rank=512,
        qk_head_dim=128,
        qk_pos_emb_head_dim=64,
        v_head_dim=128,
        num_experts=256,
        moe_router_topk=8,
        moe_ffn_hidden_size=2048,
        shared_expert_hidden_size=2048,
        moe_layers=(False,) * 3 + (True,) * 58,
    )
    recipe = trial(
        pp=16,
        vpp=2,
        ep=8,
        mbs=2,
        gbs=4096,
        pp_schedule="interleaved",
        layout=DEEPSEEK_LAYOUT,
        recompute_granularity="full",
        recompute_layer_ids=DEEPSEEK_RECOMPUTED,
        use_turbo_deepep=True,
        sync_free_stage=1,
    )
    precision = Precision(main_grads_dtype="bf16", exp_avg_dtype="bf16", exp_avg_sq_dtype="bf16")
    return workload(
        architecture, recipe.model_copy(update=knobs), seq_length=4096, precision=precision
    )


def small_moe(**knobs: Any) -> Workload:
    """An MoE model small enough to enumerate every combination of its knobs."""
    architecture = mixtral_architecture(num_layers=4).model_copy(
        update={
            "name": "small_moe",
            "hidden_size": 512,
            "num_attention_heads": 8,
            "num_query_groups": 2,
            "kv_channels": 64,
            "num_experts": 4,
            "moe_ffn_hidden_size": 1024,
            "ffn_hidden_size": 1024,
        }
    )
    recipe = trial(gbs=16)
    return workload(architecture, recipe.model_copy(update=knobs), seq_length=1024)


def small_dense(**knobs: Any) -> Workload:
    """A dense model small enough to enumerate every combination of its knobs."""
    architecture = Architecture(
        name="small_dense",
        num_layers=6,
        hidden_size=512,
        ffn_hidden_size=1536,
        num_attention_heads=8,
        num_query_groups=4,
        kv_channels=64,
        vocab_size=32000,
    )
    recipe = trial(gbs=16)
    return workload(architecture, recipe.model_copy(update=knobs), seq_length=1024)


def small_latent(**knobs: Any) -> Workload:
    """DeepSeek's kind of layers at a size of its own: latent attention, shared expert, MTP."""
    architecture = deepseek_v3().architecture.model_copy(
        update={
            "name": "small_latent",
            "num_layers": 4,
            "hidden_size": 1024,
            "ffn_hidden_size": 2048,
            "num_attention_heads": 16,
            "num_query_groups": 16,
            "q_lora_rank": 256,
            "num_experts": 16,
            "moe_ffn_hidden_size": 512,
            "shared_expert_hidden_size": 512,
            "moe_layers": (False,) + (True,) * 3,
            "mtp_num_layers": 1,
        }
    )
    recipe = trial(gbs=16)
    return workload(architecture, recipe.model_copy(update=knobs), seq_length=1024)


def mi355x() -> GpuProfile:
    """AMD Instinct MI355X, data-sheet figures."""
    return GpuProfile(
        name="mi355x",
        vendor="amd",
        arch="gfx950",
        compute_units=256,
        num_xcd=8,
        clock_mhz=2400,
        lds_bytes=160 * 1024,
        l2_bytes=4 * 1024 * 1024,
        bf16_tflops=2517,
        fp8_tflops=5033,
        hbm_gb_per_s=8000,
        hbm_capacity_gb=288,
        usable_hbm_gb=287.98,
        vector_tflops=157.3,
    )


def a100() -> GpuProfile:
    """NVIDIA A100 80 GB: no FP8."""
    return GpuProfile(
        name="a100-80g",
        vendor="nvidia",
        arch="sm_80",
        compute_units=108,
        clock_mhz=1410,
        lds_bytes=164 * 1024,
        l2_bytes=40 * 1024 * 1024,
        bf16_tflops=312,
        hbm_gb_per_s=2039,
        hbm_capacity_gb=80,
        usable_hbm_gb=79.3,
        vector_tflops=19.5,
    )


def cluster(
    num_nodes: int = 4, gpus_per_node: int = 8, gpu: GpuProfile | None = None, **fields: Any
) -> Cluster:
    """`num_nodes` nodes of MI355X (or `gpu`), wired as the ecosystem's hardware file says."""
    gpu = gpu or mi355x()
    network = Network(
        node_bw=537.6,
        node_lat=0.45,
        pod_bw=50,
        pod_lat=2.0,
        cluster_bw=25,
        cluster_lat=10,
        node_size=gpus_per_node,
        pod_size=8 * gpus_per_node,
        nics_per_node=gpus_per_node,
        vector_flops=157e12,
    )
    given: dict[str, Any] = {
        "name": f"{gpu.name}_{num_nodes}nodes",
        "hbm_capacity_gb": gpu.hbm_capacity_gb,
        "memory_safety_margin": 0.10,
        "network": network,
    }
    return Cluster(num_nodes=num_nodes, gpus_per_node=gpus_per_node, gpu=gpu, **{**given, **fields})


def search(pinned: dict[str, int | str | bool] | None = None, **axes: bool) -> SearchSpec:
    """A search with `axes` toggled and `pinned` values fixed."""
    return SearchSpec(axes=AxisToggles(**axes), pinned=pinned or {})
