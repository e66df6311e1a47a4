"""Axes that the search may not move: pinned to a value, or to the workload's by a toggle."""

from projection.legality.context import Context
from projection.legality.normal_form import (
    KNOBS,
    inherited_etp,
    inherited_param_gather,
    inherited_recompute,
    inherited_schedule,
    inherited_vpp,
)
from projection.legality.rules.rule import Rule
from schemas.trial import NormalTrial

_DEPENDS_ON = {
    "etp": ("tp",),
    "vpp": ("pp",),
    "pp_schedule": ("pp", "vpp"),
    "recompute_granularity": ("pp", "vpp"),
    "recompute_method": ("pp", "vpp"),
    "recompute_num_layers": ("pp", "vpp"),
    "overlap_param_gather": ("overlap_grad_reduce", "use_distributed_optimizer"),
    "use_turbo_deepep": ("sync_free_stage",),
    "target_ep_size": ("ep",),
}
"""Knobs whose inherited value follows others."""


def inherited_value(knob: str, trial: NormalTrial, context: Context) -> object:
    """What `knob` is when a trial like this one leaves it to the workload."""
    base = context.baseline
    if knob.startswith("recompute_"):
        return getattr(inherited_recompute(trial.pp, trial.vpp, context.workload), knob)
    match knob:
        case "etp":
            return inherited_etp(trial.tp, base)
        case "vpp":
            return inherited_vpp(trial.pp, base)
        case "pp_schedule":
            return inherited_schedule(trial.pp, trial.vpp, base)
        case "overlap_param_gather":
            return inherited_param_gather(
                trial.overlap_grad_reduce, trial.use_distributed_optimizer, base
            )
        case "use_turbo_deepep":
            return base.use_turbo_deepep or trial.sync_free_stage >= 2
        case "target_ep_size":
            return None if base.target_ep_size == trial.ep else base.target_ep_size
        case _:
            return getattr(base, knob)


def pin_rule(knob: str) -> Rule:
    """The rule that `knob` has its pinned value, where the search pins it."""

    def axis_pinned(trial: NormalTrial, context: Context) -> str | None:
        if knob in context.pinned:
            fixed: object = context.pinned[knob]
        elif knob in context.inherited:
            fixed = inherited_value(knob, trial, context)
            if knob == "recompute_granularity" and not _same_layers(trial, context):
                return f"{knob} is fixed to the workload's layers by {context.pinned_by(knob)}"
        else:
            return None
        value = getattr(trial, knob)
        if value == fixed:
            return None
        return f"{knob} = {value}, it is fixed to {fixed} by {context.pinned_by(knob)}"

    return Rule("axis_pinned", axis_pinned, (knob, *_DEPENDS_ON.get(knob, ())), elsewhere="allow")


def _same_layers(trial: NormalTrial, context: Context) -> bool:
    """Whether a listed set of recomputed layers was kept."""
    kept = inherited_recompute(trial.pp, trial.vpp, context.workload)
    return trial.recompute_layer_ids == kept.recompute_layer_ids


RULES = tuple(pin_rule(knob) for knob in KNOBS)
