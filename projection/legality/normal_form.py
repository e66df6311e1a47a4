"""The normal form of a trial: every knob has its value, and one configuration has one form.

What a trial leaves unset it inherits from the workload. Some inherited values only mean something
together with others that the trial changed; they follow, by the functions `inherited_*` below. What
a trial sets is never changed into something else: if it cannot be, the legality rules refuse it.
"""

from dataclasses import dataclass, replace
from typing import Any, TypeVar

from projection.legality.schedule_names import (
    admits,
    canonical_schedule,
    plain_schedule,
)
from projection.legality.split import balanced_layout, largest_stage
from schemas.trial import (
    SPLIT_BACKWARD,
    Fp8,
    NormalTrial,
    Recompute,
    RecomputeMethod,
    Schedule,
    TrialConfig,
)
from schemas.workload import Workload

T = TypeVar("T")

KNOBS = tuple(name for name in TrialConfig.model_fields if name in NormalTrial.model_fields)
"""Every knob of a trial in normal form, in the order of the guide."""

SELECTIVE_MODULES = ("core_attn",)
"""What Megatron recomputes under `selective` when no modules are named."""

_ONE_STAGE_ALIKE = frozenset({"1f1b", "zero-bubble", "zb-heuristic", "ilp"})


@dataclass(frozen=True, slots=True)
class RecomputeSetting:
    """The recompute knobs together: none of them means anything alone."""

    recompute_granularity: Recompute = "none"
    recompute_method: RecomputeMethod | None = None
    recompute_num_layers: int = 0
    recompute_layer_ids: tuple[int, ...] = ()
    recompute_modules: tuple[str, ...] = ()

    @classmethod
    def of(cls, trial: NormalTrial) -> "RecomputeSetting":
        """The recompute setting of a trial."""
        return cls(
            trial.recompute_granularity,
            trial.recompute_method,
            trial.recompute_num_layers,
            trial.recompute_layer_ids,
            trial.recompute_modules,
        )

    @property
    def counts_layers(self) -> bool:
        """Full recomputation of so many layers per stage (not of listed layers)."""
        return self.recompute_granularity == "full" and not self.recompute_layer_ids


@dataclass(frozen=True, slots=True)
class Split:
    """How the layers are split over the pipeline; all None: evenly."""

    layout: str | None = None
    first_stage_layers: int | None = None
    last_stage_layers: int | None = None


def normalise(trial: TrialConfig, workload: Workload) -> NormalTrial:
    """The normal form of `trial` on `workload`. Illegal trials have one too.

    `normalise(TrialConfig(), workload)` is the workload's baseline.

    Raises:
        UserError: pp_schedule is not the name of a schedule (nothing else can go wrong).
    """
    base = workload.baseline
    tp, pp = _or(trial.tp, base.tp), _or(trial.pp, base.pp)
    vpp = inherited_vpp(pp, base) if trial.vpp is None else trial.vpp
    ep = _or(trial.ep, base.ep)
    split, recompute = split_of(pp, vpp, workload), recompute_of(trial, pp, vpp, workload)
    sharding = _sharding(trial, base)
    stage = _or(trial.sync_free_stage, base.sync_free_stage)
    target_ep = _or(trial.target_ep_size, base.target_ep_size)
    return NormalTrial(
        tp=tp,
        pp=pp,
        ep=ep,
        etp=inherited_etp(tp, base) if trial.etp is None else trial.etp,
        cp=_or(trial.cp, base.cp),
        vpp=vpp,
        mbs=_or(trial.mbs, base.mbs),
        gbs=_or(trial.gbs, base.gbs),
        pp_schedule=_schedule(trial, pp, vpp, base),
        recompute_granularity=recompute.recompute_granularity,
        recompute_method=recompute.recompute_method,
        recompute_num_layers=recompute.recompute_num_layers,
        recompute_layer_ids=recompute.recompute_layer_ids,
        recompute_modules=recompute.recompute_modules,
        overlap_grad_reduce=sharding["overlap_grad_reduce"],
        overlap_param_gather=sharding["overlap_param_gather"],
        cross_entropy_loss_fusion=_or(
            trial.cross_entropy_loss_fusion, base.cross_entropy_loss_fusion
        ),
        use_distributed_optimizer=sharding["use_distributed_optimizer"],
        use_torch_fsdp2=sharding["use_torch_fsdp2"],
        use_turbo_deepep=_or(trial.use_turbo_deepep, base.use_turbo_deepep or stage >= 2),
        sync_free_stage=stage,
        target_ep_size=None if target_ep == ep else target_ep,
        fp8=_fp8(trial, workload),
        layout=split.layout,
        first_stage_layers=split.first_stage_layers,
        last_stage_layers=split.last_stage_layers,
    )


def settled(trial: NormalTrial) -> NormalTrial:
    """What a file says, in normal form: for whoever makes a workload's baseline from a file.

    Full recomputation of zero layers is none; only full recomputation has a method and a count,
    only selective has modules; sync-free stage 2 and up run DeepEP; one pipeline stage runs 1F1B;
    an all-to-all priced for the EP that runs is not an override.
    """
    changes: dict[str, Any] = {}
    full = trial.recompute_granularity == "full"
    if full and trial.recompute_num_layers == 0 and not trial.recompute_layer_ids:
        full = False
        changes["recompute_granularity"] = "none"
    if not full:
        changes |= {"recompute_method": None, "recompute_num_layers": 0, "recompute_layer_ids": ()}
    if trial.recompute_granularity != "selective":
        changes["recompute_modules"] = ()
    elif not trial.recompute_modules:
        changes["recompute_modules"] = SELECTIVE_MODULES
    if trial.sync_free_stage >= 2:
        changes["use_turbo_deepep"] = True
    if trial.pp == 1 and trial.vpp == 1:
        changes["pp_schedule"] = "1f1b"
    if trial.target_ep_size == trial.ep:
        changes["target_ep_size"] = None
    return trial.model_copy(update=changes)


def as_request(trial: NormalTrial) -> TrialConfig:
    """The trial with every knob spelled out: `normalise` gives it back."""
    return TrialConfig(**{name: getattr(trial, name) for name in KNOBS})


def short_request(trial: NormalTrial, workload: Workload) -> TrialConfig:
    """The trial as its differences from the workload only: `normalise` gives it back.

    A knob whose inherited value would follow another is spelled out where it did not follow.
    """
    read, changed = workload.baseline, dict[str, Any]()
    while True:
        more = {
            name: getattr(trial, name)
            for name in KNOBS
            if name not in changed and getattr(trial, name) != getattr(read, name)
        }
        changed |= more
        request = TrialConfig(**changed)
        read = normalise(request, workload)
        if read == trial or not more:
            return request if read == trial else as_request(trial)


def inherited_etp(tp: int, base: NormalTrial) -> int:
    """Expert TP when the trial does not say: Megatron's null means tp, so it follows tp.

    A file that sets it to another value than tp keeps that value. One that pins it to the value tp
    has anyway cannot be told from one that leaves it null, and follows as well.
    """
    return tp if base.etp == base.tp else base.etp


def inherited_vpp(pp: int, base: NormalTrial) -> int:
    """The workload's chunks per rank; one when the pipeline is given up."""
    return 1 if pp == 1 != base.pp else base.vpp


def inherited_schedule(pp: int, vpp: int, base: NormalTrial) -> Schedule:
    """The workload's schedule where it runs at all; else what needs no flag.

    With the workload's own (pp, vpp) it is the file's, run or not: the rules judge that.
    """
    if (pp, vpp) == (base.pp, base.vpp):
        return base.pp_schedule
    if pp == 1 and vpp == 1:
        return "1f1b"
    return base.pp_schedule if admits(base.pp_schedule, vpp) else plain_schedule(vpp)


def inherited_recompute(pp: int, vpp: int, workload: Workload) -> RecomputeSetting:
    """The workload's recompute; a count of layers per stage is capped where stages got smaller."""
    base = RecomputeSetting.of(workload.baseline)
    if not base.counts_layers or _same_pipeline(pp, vpp, workload):
        return base
    most = stage_capacity(pp, vpp, workload)
    return RecomputeSetting("full", base.recompute_method, min(base.recompute_num_layers, most))


def inherited_param_gather(ogr: bool, distributed: bool, base: NormalTrial) -> bool:
    """The workload's overlap_param_gather, off where what it overlaps with was turned off."""
    if (ogr, distributed) == (base.overlap_grad_reduce, base.use_distributed_optimizer):
        return base.overlap_param_gather
    return base.overlap_param_gather and ogr and distributed


def split_of(pp: int, vpp: int, workload: Workload) -> Split:
    """How the layers are split over (pp, vpp).

    The workload's own split where (pp, vpp) is the workload's. Elsewhere its layout and its first-
    and last-stage counts mean nothing: the split is even, or, for a workload that had a layout and
    layers that do not divide, a new layout in its framework's style.
    """
    base = workload.baseline
    if _same_pipeline(pp, vpp, workload):
        return Split(base.layout, base.first_stage_layers, base.last_stage_layers)
    layers = workload.architecture.num_layers
    if base.layout is None or pp < 1 or vpp < 1 or pp * vpp > layers or layers % (pp * vpp) == 0:
        return Split()
    depths = workload.architecture.mtp_num_layers if "m" in base.layout else 0
    return Split(balanced_layout(layers, pp * vpp, mtp_depths=depths))


def stage_capacity(pp: int, vpp: int, workload: Workload) -> int:
    """Decoder layers of the fullest virtual stage, at least 1 (also where the split is illegal)."""
    if pp < 1 or vpp < 1:
        return 1
    split = split_of(pp, vpp, workload)
    layers = workload.architecture.num_layers
    most = largest_stage(
        layers, pp, vpp, split.layout, split.first_stage_layers, split.last_stage_layers
    )
    return most or max(1, -(-layers // (pp * vpp)))


def recompute_of(trial: TrialConfig, pp: int, vpp: int, workload: Workload) -> RecomputeSetting:
    """The recompute setting a trial asks for.

    Untouched, it is inherited, though a number that is spelled out is not capped. Zero layers are
    none. A trial that turns full recomputation on without a number means every layer, by `block`;
    `uniform` without one has units of one layer.
    """
    base = RecomputeSetting.of(workload.baseline)
    asked = (trial.recompute_granularity, trial.recompute_method, trial.recompute_num_layers)
    was = (base.recompute_granularity, base.recompute_method, base.recompute_num_layers)
    if all(a is None or a == w for a, w in zip(asked, was, strict=True)):
        inherited = inherited_recompute(pp, vpp, workload)
        if inherited.counts_layers and trial.recompute_num_layers is not None:
            return replace(inherited, recompute_num_layers=trial.recompute_num_layers)
        return inherited
    granularity = trial.recompute_granularity or base.recompute_granularity
    if granularity == "none":
        return RecomputeSetting()
    if granularity == "selective":
        modules = base.recompute_modules if base.recompute_granularity == "selective" else ()
        return RecomputeSetting("selective", recompute_modules=modules or SELECTIVE_MODULES)
    method = trial.recompute_method or (base.counts_layers and base.recompute_method) or "block"
    layers = trial.recompute_num_layers
    if layers is None:
        inherited = inherited_recompute(pp, vpp, workload)
        every = 1 if method == "uniform" else stage_capacity(pp, vpp, workload)
        kept = inherited.counts_layers and inherited.recompute_method == method
        layers = inherited.recompute_num_layers if kept else every
    if layers == 0:
        return RecomputeSetting()
    return RecomputeSetting("full", method, _as_the_file_counts(method, layers, pp, vpp, workload))


def _as_the_file_counts(
    method: RecomputeMethod, layers: int, pp: int, vpp: int, workload: Workload
) -> int:
    """`layers`, or the file's own number where that is larger and both mean the whole stage."""
    base = workload.baseline
    if not _same_pipeline(pp, vpp, workload) or base.recompute_method != method:
        return layers
    if layers == stage_capacity(pp, vpp, workload) < base.recompute_num_layers:
        return base.recompute_num_layers
    return layers


def _schedule(trial: TrialConfig, pp: int, vpp: int, base: NormalTrial) -> Schedule:
    """The schedule a trial runs.

    A name is that schedule. `auto` and nothing are what the workload runs, unless zero-bubble is
    asked for or refused, or the workload's schedule cannot run this vpp: then the one that needs no
    further flag. With one stage there is no pipeline, and all one-chunk schedules are 1F1B.
    """
    if trial.pp_schedule is not None and trial.pp_schedule.strip().lower() != "auto":
        name = canonical_schedule(trial.pp_schedule)
        return "1f1b" if pp == 1 and vpp == 1 and name in _ONE_STAGE_ALIKE else name
    schedule, split = inherited_schedule(pp, vpp, base), trial.enable_zero_bubble
    if split is None or split == (schedule in SPLIT_BACKWARD):
        return schedule
    if split and vpp == 1 and pp > 1:
        return "zero-bubble"
    return plain_schedule(vpp)


def _sharding(trial: TrialConfig, base: NormalTrial) -> dict[str, bool]:
    """Optimizer sharding and its overlaps.

    FSDP2 and the distributed optimizer exclude each other: turning one on turns the other off
    unless the trial says otherwise (then a rule refuses it).
    """
    fsdp2, distributed = trial.use_torch_fsdp2, trial.use_distributed_optimizer
    if fsdp2 is None:
        fsdp2 = base.use_torch_fsdp2 and (distributed is not True or base.use_distributed_optimizer)
    if distributed is None:
        distributed = base.use_distributed_optimizer and (not fsdp2 or base.use_torch_fsdp2)
    ogr = _or(trial.overlap_grad_reduce, base.overlap_grad_reduce)
    gather = trial.overlap_param_gather
    return {
        "use_torch_fsdp2": fsdp2,
        "use_distributed_optimizer": distributed,
        "overlap_grad_reduce": ogr,
        "overlap_param_gather": inherited_param_gather(ogr, distributed, base)
        if gather is None
        else gather,
    }


def _fp8(trial: TrialConfig, workload: Workload) -> Fp8:
    """The FP8 format; `delayed` names a recipe, and is `hybrid` where the file has that recipe."""
    base = workload.baseline.fp8
    if trial.fp8 is None:
        return base
    if trial.fp8 == "delayed" != base and not delayed_differs(workload):
        return "hybrid"
    return trial.fp8


def delayed_differs(workload: Workload) -> bool:
    """Whether fp8 `delayed` is another configuration than `hybrid` on this workload."""
    recipe = workload.precision.fp8_recipe
    return recipe != "delayed" or workload.architecture.attention == "mla"


def _same_pipeline(pp: int, vpp: int, workload: Workload) -> bool:
    return (pp, vpp) == (workload.baseline.pp, workload.baseline.vpp)


def _or(value: T | None, inherited: T) -> T:
    return inherited if value is None else value
