"""Requests as a person or a model might make them, sensible and not, and their workloads."""

from hypothesis import strategies as st

from schemas.trial import TrialConfig
from schemas.workload import Workload
from tests.builders import deepseek_v3, llama_70b, mixtral_8x22b, small_dense, small_moe

NAMES = ("auto", "1f1b", "zerobubble", "interleaved_1f1b", "zbv-formatted", "v-half", "ilp")


def _maybe(values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | values


_size = st.sampled_from((1, 2, 3, 4, 5, 7, 8, 16, 32, 56, 64))
_flag = _maybe(st.booleans())

requests: st.SearchStrategy[TrialConfig] = st.builds(
    TrialConfig,
    **dict.fromkeys(("tp", "pp", "ep", "etp", "cp", "vpp"), _maybe(_size)),
    mbs=_maybe(st.integers(1, 20)),
    gbs=_maybe(st.sampled_from((16, 100, 128, 256, 4096))),
    pp_schedule=_maybe(st.sampled_from(NAMES)),
    enable_zero_bubble=_flag,
    recompute_granularity=_maybe(st.sampled_from(("none", "selective", "full"))),
    recompute_method=_maybe(st.sampled_from(("block", "uniform"))),
    recompute_num_layers=_maybe(st.sampled_from((0, 1, 2, 7, 14, 20, 30, 80))),
    overlap_grad_reduce=_flag,
    overlap_param_gather=_flag,
    cross_entropy_loss_fusion=_flag,
    use_distributed_optimizer=_flag,
    use_torch_fsdp2=_flag,
    use_turbo_deepep=_flag,
    sync_free_stage=_maybe(st.integers(0, 3)),
    target_ep_size=_maybe(st.sampled_from((1, 8, 16))),
    fp8=_maybe(st.sampled_from(("none", "hybrid", "e4m3", "delayed"))),
)

WORKLOADS: tuple[Workload, ...] = (
    mixtral_8x22b(),
    mixtral_8x22b(pp_schedule="zero-bubble", sync_free_stage=2, use_turbo_deepep=True),
    mixtral_8x22b(
        vpp=2,
        pp_schedule="interleaved",
        recompute_granularity="full",
        recompute_method="uniform",
        recompute_num_layers=2,
    ),
    mixtral_8x22b(
        recompute_granularity="full", recompute_method="block", recompute_num_layers=80, etp=2, tp=4
    ),
    mixtral_8x22b(recompute_granularity="selective", recompute_modules=("core_attn", "moe")),
    llama_70b(),
    llama_70b(mbs=3, gbs=96),
    deepseek_v3(),
    small_moe(),
    small_dense(fp8="hybrid"),
)
workloads: st.SearchStrategy[Workload] = st.sampled_from(WORKLOADS)
