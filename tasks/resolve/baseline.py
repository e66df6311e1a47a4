"""The parallelism, batch and memory levers of a workload: trial 0, exactly as its file says it.

A value may be illegal on a cluster; that is for the legality rules. It is an error here only when
it cannot be understood, or contradicts another.
"""

from typing import Any, Final

from projection.legality import settled
from projection.legality.schedule_choice import framework_schedule
from projection.legality.schedule_names import canonical_schedule
from schemas.architecture import Architecture
from schemas.errors import UserError
from schemas.layout import LayoutError, check_layout, layout_text, parse_layout
from schemas.trial import NormalTrial, Recompute, RecomputeMethod, Schedule
from tasks.resolve.precision import fp8_of
from tasks.resolve.settings import Settings

_WORLD: Final = 10**6
_LAYERS: Final = 10**4
"""No model has this many layers."""
_VPP_KEYS: Final = ("virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank")
_GRANULARITIES: Final[tuple[Recompute, ...]] = ("none", "selective", "full")
_METHODS: Final[tuple[RecomputeMethod, ...]] = ("block", "uniform")
_SPLITS_NOT_MODELLED: Final = (
    "decoder_pipeline_manual_split_list",
    "account_for_embedding_in_pipeline_split",
    "account_for_loss_in_pipeline_split",
)


def baseline_of(settings: Settings, architecture: Architecture) -> NormalTrial:
    """The workload's own configuration, in normal form.

    Raises WorkloadError with the place of a value that cannot be understood.
    """
    tp = settings.size("tensor_model_parallel_size", maximum=_WORLD)
    pp = settings.size("pipeline_model_parallel_size", maximum=_WORLD)
    layout = _layout(settings, architecture, pp)
    vpp = _virtual_stages(settings, architecture, pp, layout)
    recompute = _recompute(settings, architecture)
    deepep, sync_free = _moe_communication(settings, architecture)
    stated = NormalTrial(
        tp=tp,
        pp=pp,
        ep=settings.size("expert_model_parallel_size", maximum=_WORLD),
        etp=settings.whole("expert_tensor_parallel_size", maximum=_WORLD) or tp,
        cp=settings.size("context_parallel_size", maximum=_WORLD),
        vpp=vpp,
        mbs=settings.size("micro_batch_size"),
        gbs=settings.size("global_batch_size"),
        pp_schedule=_schedule(settings, pp, vpp),
        overlap_grad_reduce=settings.flag("overlap_grad_reduce"),
        overlap_param_gather=settings.flag("overlap_param_gather"),
        cross_entropy_loss_fusion=settings.flag("cross_entropy_loss_fusion"),
        use_distributed_optimizer=settings.flag("use_distributed_optimizer"),
        use_torch_fsdp2=settings.flag("use_torch_fsdp2"),
        use_turbo_deepep=deepep,
        sync_free_stage=sync_free,
        target_ep_size=None,
        fp8=fp8_of(settings),
        layout=layout,
        first_stage_layers=settings.whole("decoder_first_pipeline_num_layers", minimum=0),
        last_stage_layers=settings.whole("decoder_last_pipeline_num_layers", minimum=0),
        **recompute,
    )
    return settled(stated)


def _layout(settings: Settings, architecture: Architecture, pp: int) -> str | None:
    """The explicit layout, checked against the model and pp; None when there is none."""
    key = "pipeline_model_parallel_layout"
    if pp > 1:
        for other in _SPLITS_NOT_MODELLED:
            if settings.raw(other) not in (None, False, []):
                raise settings.error(other, f"not modelled; write the split as {key}")
    try:
        text = layout_text(settings.raw(key))
        if text is None:
            return None
        stated = _stated_vpp(settings)
        layers, mtp = architecture.num_layers, architecture.mtp_num_layers
        check_layout(parse_layout(text), layers, mtp, pp, stated)
    except LayoutError as reason:
        raise settings.error(key, str(reason)) from reason
    return text


def _stated_vpp(settings: Settings) -> int | None:
    """VPP where a key states it outright; the two spellings must agree."""
    stated = {key: settings.whole(key, maximum=_WORLD) for key in _VPP_KEYS}
    values = {value for value in stated.values() if value is not None}
    if len(values) > 1:
        said = " and ".join(f"{key} {value}" for key, value in stated.items())
        raise settings.error(_VPP_KEYS[1], f"contradicts the other spelling: {said}")
    return values.pop() if values else None


def _virtual_stages(
    settings: Settings, architecture: Architecture, pp: int, layout: str | None
) -> int:
    """Chunks per pipeline rank: stated, or implied by a layout or by layers per chunk."""
    stated = _stated_vpp(settings)
    if stated is not None:
        return stated
    if layout is not None:
        return len(parse_layout(layout)) // pp
    key = "num_layers_per_virtual_pipeline_stage"
    per_chunk = settings.whole(key, maximum=_WORLD)
    if per_chunk is None:
        return 1
    layers = architecture.num_layers
    if layers % (pp * per_chunk):
        raise settings.error(
            key, f"num_layers {layers} is not a multiple of pp·{key} = {pp}·{per_chunk}"
        )
    return layers // (pp * per_chunk)


def _schedule(settings: Settings, pp: int, vpp: int) -> Schedule:
    """The pipeline schedule the framework runs for the workload's flags."""
    algorithm = settings.text("pp_algorithm")
    patch_pipeline = settings.flag("patch_primus_pipeline")
    patch_zero, zero_bubble = (
        settings.flag("patch_zero_bubble"),
        settings.flag("enable_zero_bubble"),
    )
    v_schedule = settings.flag("zero_bubble_v_schedule")
    memory = settings.word("zero_bubble_v_schedule_mem_setup", ("half", "min", "zb")) or "half"
    try:
        if algorithm is not None:
            canonical_schedule(algorithm)  # checked whether or not a patch reads it
        return framework_schedule(
            vpp,
            pp,
            algorithm,
            patch_pipeline,
            patch_zero,
            zero_bubble,
            zero_bubble_v_schedule=v_schedule,
            zero_bubble_v_memory=memory,
        )
    except UserError as reason:
        raise settings.error("pp_algorithm", str(reason)) from reason


def _moe_communication(settings: Settings, architecture: Architecture) -> tuple[bool, int]:
    """(DeepEP, sync-free stage): off without experts or without Primus-Turbo."""
    stage = settings.whole("turbo_sync_free_moe_stage", minimum=0, maximum=3) or 0
    if not architecture.is_moe or not settings.flag("enable_primus_turbo"):
        return False, 0
    return settings.flag("use_turbo_deepep"), stage


def _recompute(settings: Settings, architecture: Architecture) -> dict[str, Any]:
    """Recomputation as the file says it; `settled` makes one configuration one form."""
    granularity = settings.word("recompute_granularity", _GRANULARITIES) or "none"
    method = settings.word("recompute_method", _METHODS)
    layers = settings.whole("recompute_num_layers", minimum=0, maximum=_LAYERS)
    modules = _recompute_modules(settings)
    if granularity == "none" and (
        settings.flag("recompute_activations") or settings.flag("moe_layer_recompute")
    ):
        granularity = "selective"
    stated: dict[str, Any] = {
        "recompute_granularity": granularity,
        "recompute_method": None,
        "recompute_num_layers": 0,
        "recompute_modules": modules,
    }
    if granularity != "full":
        return stated
    ids = _recompute_ids(settings, architecture)
    if ids:
        if method is not None:
            raise settings.error(
                "recompute_layer_ids", f"recompute_method must be null with it, it is {method}"
            )
        return stated | {"recompute_layer_ids": ids}
    if layers is None:
        raise settings.error(
            "recompute_granularity", "full needs recompute_num_layers or recompute_layer_ids"
        )
    if layers and method is None:
        raise settings.error(
            "recompute_granularity", "full needs recompute_method: block or uniform"
        )
    return stated | {"recompute_method": method, "recompute_num_layers": layers}


def _recompute_ids(settings: Settings, architecture: Architecture) -> tuple[int, ...]:
    """Layers to recompute by number; multi-token-prediction layers follow the decoder's."""
    key = "recompute_layer_ids"
    ids = tuple(sorted(set(settings.whole_list(key) or ())))
    total = architecture.num_layers + architecture.mtp_num_layers
    if ids and ids[-1] >= total:
        raise settings.error(key, f"there is no layer {ids[-1]}: the model has {total}, from 0")
    return ids


def _recompute_modules(settings: Settings) -> tuple[str, ...]:
    """Modules of selective recompute; Megatron's default is core attention alone."""
    modules = set(settings.word_list("recompute_modules")) or {"core_attn"}
    if settings.flag("moe_layer_recompute"):
        modules.add("moe")
    return tuple(sorted(modules))
