"""Rules on a request before it is in normal form: contradictions that the form cannot hold."""

from collections.abc import Callable
from typing import NamedTuple

from projection.legality.normal_form import normalise
from projection.legality.schedule_names import canonical_schedule
from schemas.errors import UserError
from schemas.legality import Violation
from schemas.trial import NormalTrial, TrialConfig
from schemas.workload import Workload

UNKNOWN_SCHEDULE = "unknown_schedule"


class RequestRule(NamedTuple):
    """One rule on (request, its normal form): the reason it is broken, or None."""

    code: str
    broken: Callable[[TrialConfig, NormalTrial], str | None]
    reads: tuple[str, ...]


def unknown_schedule(request: TrialConfig) -> str | None:
    """The schedule must be one there is; the reason names the nearest."""
    if request.pp_schedule is None or request.pp_schedule.strip().lower() == "auto":
        return None
    try:
        canonical_schedule(request.pp_schedule)
    except UserError as error:
        return str(error)
    return None


def zero_bubble_contradicts_schedule(request: TrialConfig, trial: NormalTrial) -> str | None:
    """A named schedule and enable_zero_bubble must say the same."""
    named = request.pp_schedule is not None and request.pp_schedule.strip().lower() != "auto"
    if not named or request.enable_zero_bubble is None or trial.pp == 1:
        return None
    if request.enable_zero_bubble == trial.splits_backward:
        return None
    verb = "splits" if trial.splits_backward else "does not split"
    flag = str(request.enable_zero_bubble).lower()
    return f"enable_zero_bubble {flag}, but schedule {trial.pp_schedule} {verb} the backward pass"


def zero_bubble_needs_one_chunk(request: TrialConfig, trial: NormalTrial) -> str | None:
    """With several chunks per rank the split schedules must be asked for by name."""
    named = request.pp_schedule is not None and request.pp_schedule.strip().lower() != "auto"
    if named or not request.enable_zero_bubble or trial.pp == 1:
        return None
    if trial.splits_backward:
        return None
    return f"enable_zero_bubble with vpp {trial.vpp}: name a zbv schedule (vpp 2) or set vpp 1"


def recompute_layers_without_full(request: TrialConfig, trial: NormalTrial) -> str | None:
    """A method or a number of layers only means something under full recomputation."""
    asked = request.recompute_granularity or trial.recompute_granularity
    if asked == "full" or trial.recompute_granularity == "full":
        return None
    if request.recompute_method is None and not request.recompute_num_layers:
        return None
    return (
        f"recompute_method/recompute_num_layers are set, recompute_granularity is {asked}:"
        " they need full"
    )


RULES = (
    RequestRule(
        "zero_bubble_contradicts_schedule",
        zero_bubble_contradicts_schedule,
        ("enable_zero_bubble", "pp_schedule"),
    ),
    RequestRule(
        "zero_bubble_needs_one_chunk",
        zero_bubble_needs_one_chunk,
        ("enable_zero_bubble", "vpp"),
    ),
    RequestRule(
        "recompute_layers_without_full",
        recompute_layers_without_full,
        ("recompute_granularity", "recompute_method", "recompute_num_layers"),
    ),
)


def read(request: TrialConfig, workload: Workload) -> tuple[NormalTrial, list[Violation]]:
    """The normal form of a request, and what is wrong with the request itself.

    A request with an unknown schedule has the normal form it would have without naming one.
    """
    violations = []
    unknown = unknown_schedule(request)
    if unknown is not None:
        violations.append(Violation(code=UNKNOWN_SCHEDULE, reason=unknown, axes=("pp_schedule",)))
        request = request.model_copy(update={"pp_schedule": None})
    trial = normalise(request, workload)
    for rule in RULES:
        reason = rule.broken(request, trial)
        if reason is not None:
            violations.append(Violation(code=rule.code, reason=reason, axes=rule.reads))
    return trial, violations
