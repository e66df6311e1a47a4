"""Zero bubble with the memory of 1F1B: weight gradients wait until they fill the flush."""

from projection.schedules.order import Op, Orders


def zero_bubble(pp: int, num_microbatches: int) -> Orders:
    """ZB-H1: 1F1B with a split backward pass (Qi et al. 2023, section 2.1 and figure 3).

    Rank r runs the W of a microbatch r microbatches behind its B. It warms up with pp - 1 - r
    forwards, so no rank holds more than pp microbatches, which is rank 0's peak under 1F1B.
    """
    return tuple(_rank_order(pp, rank, num_microbatches) for rank in range(pp))


def _rank_order(pp: int, rank: int, num_microbatches: int) -> tuple[Op, ...]:
    warmup = min(pp - 1 - rank, num_microbatches)
    order = [Op("F", microbatch, 0) for microbatch in range(warmup)]
    for microbatch in range(num_microbatches):
        if microbatch + warmup < num_microbatches:
            order.append(Op("F", microbatch + warmup, 0))
        order.append(Op("B", microbatch, 0))
        if microbatch >= rank:
            order.append(Op("W", microbatch - rank, 0))
    late = range(max(num_microbatches - rank, 0), num_microbatches)
    return (*order, *(Op("W", microbatch, 0) for microbatch in late))
