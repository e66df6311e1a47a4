"""Which pipeline schedule the framework really runs for a set of its flags.

The preset ships `enable_zero_bubble: true`, which does nothing by itself: a schedule other than
Megatron's own is installed only by `patch_zero_bubble` (Sea AI Lab's runtime) or
`patch_primus_pipeline` (Primus' own, which reads `pp_algorithm`), and the former wins.
"""

from typing import Final

from projection.legality.schedule_names import canonical_schedule, plain_schedule
from schemas.trial import Schedule

_V_SCHEDULES: Final[dict[str, Schedule]] = {
    "zb": "zbv-formatted",
    "half": "zbv-greedy-half",
    "min": "zbv-greedy-min",
}
"""`zero_bubble_v_schedule_mem_setup` to the schedule it sets up."""


def framework_schedule(
    vpp: int,
    pp: int,
    pp_algorithm: str | None = None,
    patch_primus_pipeline: bool = False,
    patch_zero_bubble: bool = False,
    enable_zero_bubble: bool = False,
    *,
    zero_bubble_v_schedule: bool = False,
    zero_bubble_v_memory: str = "half",
) -> Schedule:
    """The schedule that runs for these flags.

    Without a pipeline (pp 1) every schedule is 1F1B. Whether the schedule suits vpp is for the
    legality rules to say. Raises UserError for an unknown `pp_algorithm`.
    """
    if pp == 1:
        return "1f1b"
    megatron = plain_schedule(vpp)
    if patch_zero_bubble:
        if not enable_zero_bubble:
            return megatron
        if zero_bubble_v_schedule:
            return _V_SCHEDULES.get(zero_bubble_v_memory, "zbv-greedy-half")
        return "zero-bubble"
    if patch_primus_pipeline and pp_algorithm is not None:
        chosen = canonical_schedule(pp_algorithm)
        # One chunk per rank leaves nothing to interleave, whatever the algorithm is called.
        return "1f1b" if chosen == "interleaved" and vpp == 1 else chosen
    return megatron
