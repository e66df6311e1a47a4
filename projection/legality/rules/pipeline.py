"""How layers may be split over the pipeline, and which schedules run on which split."""

from projection.degrees import num_microbatches
from projection.legality.context import Context
from projection.legality.rules.rule import Rule
from projection.legality.schedule_names import admits, schedules_for
from projection.legality.split import split_problem
from schemas.trial import NormalTrial

MAX_VPP = 8
"""Chunks per rank a proposal may use (the guide's limit); a file may say more."""


def more_stages_than_layers(trial: NormalTrial, context: Context) -> str | None:
    """Every virtual stage has at least one layer, unless a layout leaves some to the embedding."""
    layers, stages = context.architecture.num_layers, trial.pp * trial.vpp
    if stages <= layers or trial.layout is not None:
        return None
    return f"pp·vpp = {trial.pp}·{trial.vpp} = {stages} stages, the model has {layers} layers"


def pp_splits_layers_unevenly(trial: NormalTrial, context: Context) -> str | None:
    """PP divides the layers, unless a layout or first- and last-stage counts make it legal."""
    return _split(trial, context, "pp_splits_layers_unevenly")


def vpp_splits_layers_unevenly(trial: NormalTrial, context: Context) -> str | None:
    """VPP divides the layers of a stage, unless a layout makes it legal."""
    return _split(trial, context, "vpp_splits_layers_unevenly")


def layout_mismatch(trial: NormalTrial, context: Context) -> str | None:
    """A layout has pp · vpp stages and the model's layers."""
    return _split(trial, context, "layout_mismatch")


def vpp_needs_pp(trial: NormalTrial, _: Context) -> str | None:
    """Without a pipeline there is nothing to interleave."""
    if trial.vpp == 1 or trial.pp > 1:
        return None
    return f"vpp {trial.vpp} needs pp > 1, pp is {trial.pp}"


def vpp_too_deep(trial: NormalTrial, context: Context) -> str | None:
    """The guide's limit on chunks per rank."""
    if trial.vpp <= MAX_VPP or trial.vpp in context.given("vpp"):
        return None
    return f"vpp {trial.vpp} is more than {MAX_VPP} chunks per rank"


def schedule_vpp(trial: NormalTrial, _: Context) -> str | None:
    """Each schedule runs one chunk per rank, two in a V, or any number above one."""
    if admits(trial.pp_schedule, trial.vpp):
        return None
    fitting = ", ".join(schedules_for(max(trial.pp, 2), trial.vpp))
    return f"schedule {trial.pp_schedule} does not run vpp {trial.vpp}; for that: {fitting}"


def interleaved_microbatches(trial: NormalTrial, context: Context) -> str | None:
    """Megatron interleaves whole rounds of PP microbatches."""
    if trial.pp_schedule != "interleaved" or trial.pp == 1:
        return None
    count = num_microbatches(trial, context.world)
    if count >= trial.pp and count % trial.pp == 0:
        return None
    what = "fewer than" if count < trial.pp else "not a multiple of"
    return f"interleaved with {count} microbatches, {what} pp {trial.pp}"


def _split(trial: NormalTrial, context: Context, code: str) -> str | None:
    problem = split_problem(
        context.architecture.num_layers,
        trial.pp,
        trial.vpp,
        trial.layout,
        trial.first_stage_layers,
        trial.last_stage_layers,
    )
    return problem[1] if problem is not None and problem[0] == code else None


_SPLIT = ("pp", "vpp")

RULES = (
    Rule("more_stages_than_layers", more_stages_than_layers, _SPLIT),
    Rule("pp_splits_layers_unevenly", pp_splits_layers_unevenly, _SPLIT),
    Rule("vpp_splits_layers_unevenly", vpp_splits_layers_unevenly, _SPLIT),
    Rule("layout_mismatch", layout_mismatch, _SPLIT),
    Rule("vpp_needs_pp", vpp_needs_pp, _SPLIT),
    Rule("vpp_too_deep", vpp_too_deep, ("vpp",), elsewhere="allow"),
    Rule("schedule_vpp", schedule_vpp, ("pp", "vpp", "pp_schedule")),
    Rule(
        "interleaved_microbatches",
        interleaved_microbatches,
        ("tp", "cp", "pp", "pp_schedule", "mbs", "gbs"),
    ),
)
