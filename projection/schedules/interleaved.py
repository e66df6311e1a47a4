"""Interleaved 1F1B: several chunks a rank, microbatches advanced in groups."""

from projection.schedules.order import Op, Orders


def group_size(pp: int, num_microbatches: int) -> int:
    """Microbatches that go through one chunk before the rank turns to the next.

    Megatron's rule for `microbatch_group_size_per_virtual_pipeline_stage`: at least pp, by default
    pp, and what is left for a last group must be none or at least pp. The smallest such size, so pp
    for a multiple of pp. Fewer microbatches than pp are one group (Megatron refuses those).
    """
    if num_microbatches <= pp:
        return num_microbatches
    sizes = range(pp, num_microbatches + 1)
    return next(g for g in sizes if num_microbatches % g == 0 or num_microbatches % g >= pp)


def interleaved(pp: int, vpp: int, num_microbatches: int, group: int) -> Orders:
    """Interleaved 1F1B in Megatron's order (Narayanan et al. 2021, section 2.2.2).

    Groups of `group` microbatches (see `group_size`) go through chunk 0, then chunk 1, …; backward
    passes take the chunks the other way round. Rank r runs 2(pp - 1 - r) + (vpp - 1)·group forwards
    before the first backward pass, then one of each in turn.
    """
    forward = _passes(group, vpp, num_microbatches)
    orders = []
    for rank in range(pp):
        ahead = min(2 * (pp - 1 - rank) + (vpp - 1) * group, len(forward))
        order = [Op("F", microbatch, chunk) for microbatch, chunk in forward[:ahead]]
        for index, (microbatch, chunk) in enumerate(forward):
            if index + ahead < len(forward):
                order.append(Op("F", *forward[index + ahead]))
            order.append(Op("BW", microbatch, vpp - 1 - chunk))
        orders.append(tuple(order))
    return tuple(orders)


def _passes(group: int, vpp: int, num_microbatches: int) -> list[tuple[int, int]]:
    """(microbatch, chunk) of all forward passes of a rank, in order."""
    return [
        (microbatch, chunk)
        for first in range(0, num_microbatches, group)
        for chunk in range(vpp)
        for microbatch in range(first, min(first + group, num_microbatches))
    ]
