"""Pinned knobs as somebody wrote them, as values a trial can have."""

from collections.abc import Mapping
from typing import Final

from projection.legality.rules.values import MAX_SYNC_FREE_STAGE
from projection.legality.schedule_names import canonical_schedule
from schemas.errors import ClusterError, UserError
from schemas.legality import AxisValue
from schemas.trial import TrialConfig
from tasks.resolve.environment import place
from tasks.resolve.file_schema import as_model, shown
from tasks.resolve.yaml_file import KeyPath, YamlFile

_LARGEST_WORLD: Final = 10**6
_RANGES: Final = {
    **dict.fromkeys(("tp", "pp", "ep", "etp", "cp", "vpp", "mbs"), (1, _LARGEST_WORLD)),
    "gbs": (1, 10**12),
    "recompute_num_layers": (0, 10**6),
    "sync_free_stage": (0, MAX_SYNC_FREE_STAGE),
    "target_ep_size": (1, _LARGEST_WORLD),
}
"""Least and most a pinned number can be on any cluster; what is legal on this one is for the
rules."""


def pinned_knobs(
    pinned: Mapping[str, AxisValue], file: YamlFile, at: KeyPath
) -> dict[str, AxisValue]:
    """`pinned`, which stands at `at` in `file`, by the names of `TrialConfig` and with values of
    its types.

    Raises:
        ClusterError: there is no such knob, or no cluster could have such a value of it.
    """
    trial = as_model(TrialConfig, dict(pinned), file, at)
    for knob, (least, most) in _RANGES.items():
        value = getattr(trial, knob)
        if value is not None and not least <= value <= most:
            bound = f"at least {least}" if value < least else f"at most {most}"
            given = shown(file, (*at, knob), value)
            raise ClusterError(f"{place(file, (*at, knob))}: expected {bound}, got {given}")
    if trial.pp_schedule is not None and trial.pp_schedule != "auto":
        try:
            canonical_schedule(trial.pp_schedule)
        except UserError as reason:
            asked = shown(file, (*at, "pp_schedule"), trial.pp_schedule)
            said = str(reason).replace(repr(trial.pp_schedule)[:80], asked)
            raise ClusterError(f"{place(file, (*at, 'pp_schedule'))}: {said}") from reason
    values: dict[str, AxisValue] = trial.model_dump(exclude_none=True)
    return values
